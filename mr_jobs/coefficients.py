"""The sample pass with the coefficients: its single reducer builds R and the start centroids ([EC] Alg. 3 and 4).

``python -m mr_jobs.coefficients -r local -k 10 --landmarks 300 --output model.npz data.csv``, or without a pass
over the rows, from a sample already taken: ``--from-sample sample.npz`` instead of the input.
"""

from __future__ import annotations

from mr_jobs.base import FoldJob


class CoefficientsJob(FoldJob):
    pass_option = "--settings"
    finishes = True

    @classmethod
    def describe(cls, step):
        # threads: the reducer runs alone on this machine, whose cores are free
        return {
            "settings": step.settings.to_dict(),
            "threshold": int(step.threshold),
            "width": step.width,
            "threads": None,
        }

    def build(self, described):
        from apnc.settings import Settings

        settings = Settings.from_dict(described.pop("settings"))
        if self.options.run_mapper:  # the same map as of the sample, and no more imports
            from apnc.sampling import SampleFold
            from apnc.scaling import BY_COLUMN

            columns = settings.scale in BY_COLUMN
            size = settings.sample_rows(described["width"])
            return SampleFold(settings.seed, size, described["threshold"], described["width"], columns)
        from apnc.coefficients import CoefficientsFold

        return CoefficientsFold(settings, **described)

    @staticmethod
    def pack_result(result):
        sample, model = result
        packed = {f"sample/{name}": value for name, value in sample.to_dict().items()}
        if model is not None:
            packed |= {f"model/{name}": value for name, value in model.to_dict().items()}
        return packed

    @staticmethod
    def unpack_result(packed):
        from apnc.model import Model
        from apnc.sampling import Sample

        def part(prefix):
            return {name.removeprefix(prefix): v for name, v in packed.items() if name.startswith(prefix)}

        model = part("model/")
        return Sample.from_dict(part("sample/")), Model.from_dict(model) if model else None

    def add_options(self, parser):
        from apnc.options import add_input
        from mr_jobs.standalone import add_output, add_settings

        add_output(parser, "model.npz, with its embedded sample for the passes to come")
        parser.add_argument("--from-sample", metavar="FILE", help="sample.npz; no input is read then")
        add_settings(parser)
        add_input(parser)

    def launch(self, driver):
        driver.save_model(driver.coefficients(type(self)))


if __name__ == "__main__":
    CoefficientsJob.run()
