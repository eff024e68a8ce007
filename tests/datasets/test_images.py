"""Image files of every kind, their crops, and files that are no images."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from spr_jax.datasets.images import (
    ImageFiles,
    centre_crop,
    decode_all,
    image_files,
    open_image,
    random_resized_crop,
    readable,
)


def make_image(height, width, seed=0):
    """Smooth, so that resizing in another way makes no difference."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows * 200 // height, columns * 200 // width, 0 * rows + 30], -1).astype(
        np.uint8
    )


def test_every_kind_becomes_rgb(tmp_path):
    grey = np.full((4, 4), 100, np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(grey.astype(np.uint16) * 256).save(tmp_path / "deep.png")
    Image.fromarray(np.stack([grey] * 3, -1)).save(tmp_path / "colour.jpg", quality=95)
    Image.fromarray(np.stack([grey] * 3, -1)).convert("CMYK").save(tmp_path / "print.jpg")
    palette = Image.fromarray(np.zeros((4, 4), np.uint8), "L").convert("P")
    palette.putpalette([100, 100, 100] * 256)
    palette.save(tmp_path / "palette.gif")
    for path in image_files(tmp_path):
        image = open_image(path)
        assert image.mode == "RGB"
        np.testing.assert_allclose(np.asarray(image), 100, atol=3, err_msg=path.name)


def test_transparency_becomes_white(tmp_path):
    clear = np.zeros((2, 2, 4), np.uint8)
    clear[0, 0] = (10, 20, 30, 255)
    Image.fromarray(clear).save(tmp_path / "clear.png")
    pixels = np.asarray(open_image(tmp_path / "clear.png"))
    assert pixels[0, 0].tolist() == [10, 20, 30]
    assert pixels[1, 1].tolist() == [255, 255, 255]


def test_photographs_are_turned_upright(tmp_path):
    image = Image.fromarray(make_image(6, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    image.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    assert open_image(tmp_path / "turned.jpg").size == (6, 10)


def test_only_images_are_listed_in_the_order_of_their_names(tmp_path):
    for name in ["b.PNG", "a.jpg", "sub/c.webp", ".x.png", ".thumbs/d.png", "x.txt", "a.npy"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [str(path.relative_to(tmp_path)) for path in image_files(tmp_path)]
    assert names == ["a.jpg", "b.PNG", "sub/c.webp"]


def test_centre_crop_takes_the_middle():
    image = Image.fromarray(make_image(40, 80))
    crop = centre_crop(image, 20, 40)  # no resizing: rows 10 to 30, columns 30 to 50
    np.testing.assert_array_equal(crop, make_image(40, 80)[10:30, 30:50])
    whole = centre_crop(Image.fromarray(make_image(30, 30)), 30, 30)
    np.testing.assert_array_equal(whole, make_image(30, 30))


@pytest.mark.parametrize(("height", "width"), [(40, 60), (10, 200), (200, 10)])
def test_random_crops_have_the_area_and_shape_asked_for(height, width):
    """Read from the pixels: red rises with the row, green with the column."""
    image, generator = Image.fromarray(make_image(height, width)), np.random.default_rng(0)
    areas, ratios = [], []
    for _ in range(300):
        crop = random_resized_crop(image, 16, generator, scale=(0.3, 0.9)).astype(float)
        rows = (crop[-1, 0, 0] - crop[0, 0, 0]) / 200 * 16 / 15
        columns = (crop[0, -1, 1] - crop[0, 0, 1]) / 200 * 16 / 15
        areas.append(rows * columns)
        ratios.append(columns * width / (rows * height))
    if height == 40:
        assert 0.25 < min(areas) < 0.4 and 0.8 < max(areas) < 0.95
        assert 0.65 < min(ratios) < 0.85 and 1.2 < max(ratios) < 1.5
    else:  # nothing fits: the largest central box
        expected = 4 / 3 if width > height else 3 / 4
        np.testing.assert_allclose(ratios, expected, rtol=0.25)


@pytest.fixture
def files(tmp_path):
    for k in range(5):
        Image.fromarray(make_image(20 + k, 30)).save(tmp_path / f"{k}.png")
    return ImageFiles([str(tmp_path / f"{k}.png") for k in range(5)], size=8, short_side=10)


def test_files_look_like_an_array(files):
    assert files.shape == (5, 8, 8, 3) and len(files) == 5
    assert files[2].shape == (8, 8, 3) and files[2].dtype == np.uint8
    np.testing.assert_array_equal(files[[3, 1]], [files[3], files[1]])
    np.testing.assert_array_equal(files[1:3], [files[1], files[2]])
    assert files[:0].shape == (0, 8, 8, 3)
    np.testing.assert_array_equal(files.take(np.array([4, 0]))[0], files[4])


def test_random_crops_are_a_function_of_the_seed(files):
    first, second = files.random_crops(1, 2, (0, 3, 1))
    again, _ = files.random_crops(1, 2, (0, 3, 1))
    other, _ = files.random_crops(1, 2, (0, 4, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != second).any() and (first != other).any()


def test_files_that_cannot_be_read_are_named(files, tmp_path, caplog):
    content = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(content[: len(content) // 2])
    (tmp_path / "3.png").write_text("no image")
    (tmp_path / "4.png").unlink()
    images = np.zeros(files.shape, np.uint8)
    errors = decode_all(files, images)
    np.testing.assert_array_equal(images[2], files[2])
    with pytest.raises(ValueError, match="Cannot read the image .*1.png: .*2 more cannot"):
        readable(errors, skip=False)
    assert readable(errors, skip=True).tolist() == [True, False, True, False, False]
    with pytest.raises(ValueError, match="Cannot read the image .*3.png: it is damaged or not"):
        files[3]


def test_pixels_of_32_bits_are_refused_by_name(tmp_path):
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "deep.tif")
    with pytest.raises(ValueError, match="deep.tif: its pixels have 32 bits, expected 8 or 16"):
        open_image(tmp_path / "deep.tif")


def test_a_size_is_refused_before_anything_is_decoded(tmp_path):
    """The header of a PNG of 20,000 x 20,000 pixels, and none of them."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    for width in (20_000, 30_000):  # Pillow warns of the first, and refuses the second
        header = struct.pack(">IIBBBBB", width, 20_000, 8, 2, 0, 0, 0)
        content = chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
        content = b"\x89PNG\r\n\x1a\n" + content
        (tmp_path / "large.png").write_bytes(content)
        with pytest.raises(ValueError, match="large.png: it has more than 200 million pixels"):
            open_image(tmp_path / "large.png")


def test_an_animation_is_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (4, 4), (shade, 0, 0)) for shade in (40, 120, 200)]
    for name in ("film.gif", "film.webp", "film.png"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        assert abs(int(np.asarray(open_image(tmp_path / name))[0, 0, 0]) - 40) < 4
