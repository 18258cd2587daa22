"""Names of modules that accelerate and ktransformers go by, as transformers has them for each family.

Llama's names hold for most decoders; families of mixtures differ in what their feed-forward is made of.
"""

from __future__ import annotations

from dataclasses import dataclass

LAYER = ("input_layernorm", "self_attn", "post_attention_layernorm")  # besides the feed-forward
LLAMA_LIKE = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe", "kimi_k2", "llama", "mistral", "mixtral",
              "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mixture:
    """A layer's feed-forward of experts. block : its module. beside : its children but `experts`.

    block_class, injected, experts_class : what ktransformers' rules match, and put in its and the experts' place.
    """

    block: str
    beside: tuple[str, ...]
    block_class: str = ""
    injected: str = ""
    experts_class: str = "ktransformers.operators.experts.KTransformersExperts"


_DEEPSEEK = Mixture("mlp", ("gate", "shared_experts"), "ktransformers.models.modeling_deepseek_v3.DeepseekV3MoE",
                    "ktransformers.operators.experts.KDeepseekV3MoE")
MIXTURES = {
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "deepseek_v2": Mixture("mlp", ("gate", "shared_experts"), "ktransformers.models.modeling_deepseek.DeepseekV2MoE",
                           "ktransformers.operators.experts.KDeepseekV2MoE"),
    "qwen3_moe": Mixture("mlp", ("gate",), "ktransformers.models.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
                         "ktransformers.operators.experts.KQwen3MoeSparseMoeBlockV2",
                         "ktransformers.operators.experts.KTransformersExpertsV2"),
    "qwen2_moe": Mixture("mlp", ("gate", "shared_expert", "shared_expert_gate"),
                         "ktransformers.models.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
                         "ktransformers.operators.experts.KQwen2MoeSparseMoeBlock"),
    "mixtral": Mixture("block_sparse_moe", ("gate",)),
    "glm4_moe": Mixture("mlp", ("gate", "shared_experts")),
    "deepseek_v32": Mixture("mlp", ("gate", "shared_experts")),
}  # fmt: skip
