"""One k-means pass over an embedding: Z, g and the objective per run, mapped, combined, reduced ([EC] Algorithm 2).

``python -m mr_jobs.kmeans -r local --model model.npz --output next.npz embedding``, again and again until it says
that the passes are over.
"""

from __future__ import annotations

from itertools import groupby

from apnc.hadoop_settings import PART_BYTES
from mr_jobs.base import FoldJob


class KMeansJob(FoldJob):
    combines = True

    @classmethod
    def describe(cls, step):
        return step.to_dict()

    def build(self, described):
        from apnc.kmeans import kmeans_from_dict
        from apnc.passes import fold_from_dict

        return fold_from_dict(described, kmeans_from_dict)

    @staticmethod
    def split(key, part):
        """Yield Z and g by stretches of clusters, so that several reducers can share a large k × m."""
        sums = part.get("sums")
        if sums is None or sums.nbytes <= PART_BYTES:
            yield key, part
            return
        step = max(1, PART_BYTES // sums[:1].nbytes)
        for i, start in enumerate(range(0, len(sums), step)):
            yield f"{key}/{i:06d}", {name: values[start : start + step] for name, values in part.items()}

    @staticmethod
    def joined(state):
        import numpy as np

        whole = {key: part for key, part in state.items() if "/" not in key}
        pieces = sorted(key for key in state if "/" in key)
        for name, keys in groupby(pieces, lambda key: key.partition("/")[0]):
            parts = [state[key] for key in keys]
            whole[name] = {part: np.concatenate([p[part] for p in parts]) for part in parts[0]}
        return whole

    def add_options(self, parser):
        from mr_jobs.standalone import add_output

        add_output(parser, "the model after the pass")

    def launch(self, driver):
        driver.save_model(driver.kmeans_pass(type(self)))


if __name__ == "__main__":
    KMeansJob.run()
