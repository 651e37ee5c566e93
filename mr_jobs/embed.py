"""The embedding: y = R κ(L, x) for every row, block by block, in map tasks only ([EC] Algorithm 1).

``python -m mr_jobs.embed -r local --model model.npz --output-dir embedding data.csv``
"""

from __future__ import annotations

from mr_jobs.base import MapJob


class EmbedJob(MapJob):
    @classmethod
    def describe(cls, step):
        return step.to_dict()

    def build(self, described):
        from apnc.embed import embed_map_from_dict

        return embed_map_from_dict(described)

    def encode(self, block):
        from apnc.readers.encoded import encode

        yield b"%d" % block.n, encode(block)

    def add_options(self, parser):
        from mr_jobs.standalone import add_input

        add_input(parser)

    def launch(self, driver):
        from apnc.embed import EmbedMap

        driver.map_rows(type(self), EmbedMap.of(driver.model()))


if __name__ == "__main__":
    EmbedJob.run()
