"""A merge by mergekit: `peer_mergekit.py MERGE DESTINATION BASE TUNE…`, all folders with safetensors."""

import sys

import yaml
from mergekit.config import MergeConfiguration
from mergekit.merge import MergeOptions, run_merge


def configuration(merge: str, base: str, tunes: list[str]) -> dict:
    models = [{"model": base}, *({"model": tune} for tune in tunes)]
    if merge == "linear":
        equal = [{**model, "parameters": {"weight": 1.0}} for model in models]
        return {"merge_method": "linear", "models": equal}
    if merge == "slerp":
        return {
            "merge_method": "slerp",
            "base_model": base,
            "models": models,
            "parameters": {"t": 0.3},
        }
    tuned = [{"model": tune, "parameters": {"weight": 1.0, "density": 0.5}} for tune in tunes]
    settings = {"normalize": True}
    return {"merge_method": "ties", "base_model": base, "models": tuned, "parameters": settings}


def main() -> None:
    merge, destination, base, *tunes = sys.argv[1:]
    given = yaml.safe_dump({**configuration(merge, base, tunes), "dtype": "float32"})
    config = MergeConfiguration.model_validate(yaml.safe_load(given))
    run_merge(config, destination, MergeOptions(copy_tokenizer=False, lazy_unpickle=True))


if __name__ == "__main__":
    main()
