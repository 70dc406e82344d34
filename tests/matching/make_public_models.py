"""Make public_models.json: names and shapes of tiny models, as `transformers` has them.

Run it in an environment of its own, with `pip install transformers==5.23.0 torch`:

    python tests/matching/make_public_models.py
"""

import json
from pathlib import Path

import torch
import transformers

SIZES = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4}
WORDS = {"vocab_size": 100}
SHARED = {**SIZES, **HEADS, **WORDS, "num_key_value_heads": 2}
MODELS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", SHARED),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 64, "n_layer": 3, "n_head": 4, **WORDS, "n_positions": 32},
    ),
    "bert": ("BertModel", "BertConfig", {**SIZES, **HEADS, **WORDS, "max_position_embeddings": 48}),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 64, "d_ff": 160, "num_layers": 3, "num_heads": 4, "d_kv": 16, **WORDS},
    ),
    "vit": (
        "ViTForImageClassification",
        "ViTConfig",
        {**SIZES, **HEADS, "image_size": 32, "patch_size": 8, "num_labels": 10},
    ),
    "gemma": (
        "GemmaForCausalLM",
        "GemmaConfig",
        {**SHARED, "num_key_value_heads": 1, "head_dim": 16},
    ),
}


def main():
    found = {}
    with torch.device("meta"):
        for name, (model, config, settings) in MODELS.items():
            made = getattr(transformers, model)(getattr(transformers, config)(**settings))
            found[name] = {key: list(value.shape) for key, value in made.state_dict().items()}
    Path(__file__).with_name("public_models.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
