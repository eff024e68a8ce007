"""TopoFilter (Wu et al., 2020): the clean examples of a class hang together in feature space.

https://arxiv.org/abs/2012.04835. Every few epochs, by the features that the network has now:

    graph   each example and its nearest neighbors, without edges between different labels
    Q       of each class, the largest connected component of the graph
    C       C and Q together, less those whose label the neighbors within C outvote

The network learns from C until the next time.
"""

import jax.numpy as jnp
import numpy as np

from spr_jax.losses import cross_entropy
from spr_jax.methods.batch_masks import mean_over
from spr_jax.methods.method import Method, expect, warn_of_few


def topofilter(
    warmup: int = 30,
    filter_every: int = 5,
    graph_neighbors: int = 4,
    vote_neighbors: int = 32,
    agreement: float = 0.5,
) -> Method:
    """TopoFilter: learn from the largest connected component of each class in feature space.

    The features are those of an eval-mode pass without augmentation, where the released code
    augments. Examples that are left out keep their place in the batch, without a weight.

    Args:
      warmup: epochs of learning from all examples, before the one after which some are left out.
      filter_every: epochs between two selections.
      graph_neighbors: nearest neighbors in the graph; the authors advise more where noise is heavy.
      vote_neighbors: nearest neighbors that vote about a label, as does the example itself.
      agreement: votes that a label needs besides the majority, as a fraction of those neighbors.
    """
    expect(warmup >= 0, "warmup", warmup, "0 or more")
    counts = {"graph_neighbors": graph_neighbors, "vote_neighbors": vote_neighbors}
    for name, value in (counts | {"filter_every": filter_every}).items():
        expect(value >= 1, name, value, "1 or more")
    expect(0 <= agreement <= 1, "agreement", agreement, "a fraction from 0 to 1")

    def init(labels, num_classes):
        kept = "if nothing of a class is selected, all of it is kept"
        warn_of_few(labels, num_classes, graph_neighbors + 1, kept)
        numbers = {"classes_kept_whole": jnp.float32(0)}
        return {"clean": jnp.ones(len(labels), bool), "selection": numbers}

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = cross_entropy(output.logits, batch.labels)
        return mean_over(memory["clean"][batch.index], each, batch.weights), ((network,), {})

    def revise(memory, epoch, key):
        if epoch.number < warmup or (epoch.number - warmup) % filter_every:
            return memory
        clean, seen = np.array(memory["clean"]), np.asarray(epoch.visited)
        features, labels = (
            np.asarray(epoch.scan()["features"])[seen],
            np.asarray(epoch.labels)[seen],
        )
        core = largest_components(features, labels, graph_neighbors)
        if epoch.number > warmup:  # else all were clean, and C is still empty
            core |= clean[seen]
        core[core] = wins_vote(features[core], labels[core], vote_neighbors, agreement)
        lost = is_lost(labels, core)
        clean[seen] = core | lost
        numbers = {"classes_kept_whole": np.float32(len(np.unique(labels[lost])))}
        return {"clean": clean, "selection": numbers}

    return Method(init, (loss,), revise)


def neighbor_graph(features, count):
    """Directed edges to the nearest others, as a sparse matrix [n, n] of ones."""
    from sklearn.neighbors import kneighbors_graph  # a second to import

    return kneighbors_graph(features, min(count, len(features) - 1))


def largest_components(features, labels, count):
    """Mark the largest connected component of each class, [n]; the first of equal ones."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, columns = neighbor_graph(features, count).nonzero()
    alike = labels[rows] == labels[columns]
    edges = coo_array((alike[alike], (rows[alike], columns[alike])), shape=(len(labels),) * 2)
    component = connected_components(edges, directed=False)[1]
    sizes = np.bincount(component)[component]  # of each example's
    first = [np.argmax(sizes * (labels == label)) for label in np.unique(labels)]
    return np.isin(component, component[first])


def wins_vote(features, labels, count, agreement):
    """Mark labels that most of the neighbors have, and at least this fraction of them, [n]."""
    own = np.eye(labels.max() + 1)[labels]
    graph = neighbor_graph(features, count)
    votes = own + graph @ own
    needed = agreement * graph.nnz / len(labels)
    return (votes.argmax(axis=1) == labels) & (votes.max(axis=1) >= needed)


def is_lost(labels, clean):
    """Mark the examples of classes without any clean one, [n]: these are kept as they are."""
    return ~np.isin(labels, labels[clean])
