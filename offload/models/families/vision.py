"""A vision tower beside a decoder: layers that are stored and that no text token goes through."""

from __future__ import annotations

from offload.errors import ModelError
from offload.models.architecture import Layer, Matrix
from offload.models.families.fields import Fields
from offload.models.families.parts import few_layers, linear, norm


def siglip_layers(fields: Fields, hidden: int) -> tuple[Layer, ...]:
    """SigLIP's encoder and the projection to a decoder of `hidden`, as Gemma 3 stores them.

    The last of the layers holds what is no encoder layer: patch and position embedding, norms, projection. Defaults
    are those of the classes.
    """
    kind = fields.text("model_type", "siglip_vision_model")
    if kind != "siglip_vision_model":
        raise ModelError(f"{fields.name('model_type')} is {kind[:60]!r}: only siglip_vision_model is counted here.")
    width, ffn = fields.whole("hidden_size", default=768), fields.whole("intermediate_size", default=3072)
    count = fields.whole("num_hidden_layers", default=12)
    few_layers(count)
    image, patch = fields.whole("image_size", default=224), fields.whole("patch_size", default=16)
    channels = fields.whole("num_channels", default=3)
    layer = Layer(tuple([
        *linear("vision", width, width, bias=True) * 4,
        *linear("vision", ffn, width, bias=True),
        *linear("vision", width, ffn, bias=True),
        *norm(width, bias=True) * 2,
    ]), attention="none")  # fmt: skip
    ends = [
        *linear("vision", width, channels * patch * patch, bias=True),
        Matrix("vision", None, (image // patch) ** 2, width),
        *norm(width, bias=True), *norm(width),
        Matrix("vision", None, width, hidden),
    ]  # fmt: skip
    if fields.flag("vision_use_head", True):
        ends += [
            Matrix("vision", None, 1, width),
            *linear("vision", 3 * width, width, bias=True), *linear("vision", width, width, bias=True),
            *norm(width, bias=True),
            *linear("vision", ffn, width, bias=True), *linear("vision", width, ffn, bias=True),
        ]  # fmt: skip
    return (*(layer,) * count, Layer(tuple(ends), attention="none", feed_forward="none"))
