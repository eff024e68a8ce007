"""Every field of an experiment, for the configs here: those of `spr_jax/base_config.py`.

They are in the package so that label errors can be looked for in images without this folder.
"""

from spr_jax.base_config import decide, get_config, section

__all__ = ["decide", "get_config", "section"]
