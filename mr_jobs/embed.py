"""The embedding: y = R κ(L, x) for every row, block by block, in map tasks only ([EC] Algorithm 1).

``python -m mr_jobs.embed -r local --model model.npz --output-dir embedding data.csv``
"""

from __future__ import annotations

from mr_jobs.base import MapJob


class EmbedJob(MapJob):
    @classmethod
    def describe(cls, step):
        return step.to_dict()

    def task_pass(self):
        stored = stored_pass(self.options.model)
        return super().task_pass() if stored is None else stored[0]

    def build(self, described):
        from apnc.embed import embed_map_from_dict

        return embed_map_from_dict(described)

    def encode(self, block):
        from apnc.readers.encoded import encode

        yield b"%d" % block.n, encode(block)

    def add_options(self, parser):
        from apnc.options import add_input

        add_input(parser)

    def launch(self, driver):
        from apnc.embed import EmbedMap

        driver.embed_rows(type(self), EmbedMap.of(driver.model_to_embed()))


def stored_pass(path):
    """Return (EmbedMap, other values) of a file with several blocks, which stay there; None of any other."""
    from apnc.embed import EmbedMap
    from apnc.embeddings.stored import stored_embedding
    from apnc.scaling import Scaler

    found = stored_embedding(path)
    if found is None:
        return None
    d, embedding = found
    scaler = Scaler(d["scale"], d.get("scale.shift"), d.get("scale.factor"))
    return EmbedMap(embedding, scaler, d["width"], d["sparse"]), d


if __name__ == "__main__":
    EmbedJob.run()
