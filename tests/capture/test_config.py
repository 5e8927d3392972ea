"""config.json files of many kinds: what each model is given, or why it is refused."""

from __future__ import annotations

import json

import pytest

from rooftile.capture.target import capture_target
from rooftile.errors import InputError, TargetError

TEXT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 40,
}  # fmt: skip
VISION = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14, "num_channels": 3,
}  # fmt: skip
BERT = {"model_type": "bert", **TEXT}
RESNET = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
    "layer_type": "basic",
}  # fmt: skip
LLAVA = {
    "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
    "text_config": {"model_type": "llama", **TEXT},
    # the features are those before the last layer
    "vision_config": {"model_type": "clip_vision_model", **VISION, "num_hidden_layers": 2},
    "image_token_index": 63,
}  # fmt: skip
CLIP = {
    "model_type": "clip", "projection_dim": 16,
    "text_config": {"model_type": "clip_text_model", **TEXT},
    "vision_config": {"model_type": "clip_vision_model", **VISION},
}  # fmt: skip
WAV2VEC2 = {
    "model_type": "wav2vec2", **TEXT, "conv_dim": [8, 8], "conv_kernel": [10, 8],
    "conv_stride": [8, 8], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8,
}  # fmt: skip
BART = {
    "model_type": "bart", "is_encoder_decoder": True, "d_model": 32, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 64, "max_position_embeddings": 40,
}  # fmt: skip
SEEING = {
    "model_type": "vision-encoder-decoder", "is_encoder_decoder": True,
    "architectures": ["VisionEncoderDecoderModel"],
    "encoder": {"model_type": "vit", **VISION},
    "decoder": {**BERT, "is_decoder": True, "add_cross_attention": True},
    "decoder_start_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
SPEECH = {
    **BART, "model_type": "speech_to_text", "max_source_positions": 60, "max_target_positions": 20,
    "input_feat_per_channel": 8, "conv_channels": 16,
    "architectures": ["Speech2TextForConditionalGeneration"],
}  # fmt: skip


@pytest.fixture
def capture(tmp_path):
    """Capture a config.json of these settings."""

    def run(settings, *, name=None, **options):
        path = tmp_path / "config.json"
        given = {} if name is None else {"architectures": [name]}
        path.write_text(json.dumps({**settings, **given}))
        return capture_target(str(path), **options)

    return run


def shapes(graph, name, role):
    """Shapes of one operand of every op of a name."""
    return [op.operand(role).shape for op in graph.ops if op.name == name]


def test_an_image_size_that_no_one_says(capture):
    """A ResNet's config has none: 224 x 224, and the assumption says so."""
    graph = capture(RESNET, name="ResNetForImageClassification", batch=2)
    assert shapes(graph, "convolution", "input")[0] == (2, 3, 224, 224)
    assert any("images of 224 x 224" in note for note in graph.assumptions)


def test_a_schedule_that_is_computed_while_building(capture):
    """ConvNeXt reads its drop rates as numbers: it can be built without weights all the same."""
    settings = {
        "model_type": "convnext", "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2,
        "image_size": 32,
    }  # fmt: skip
    graph = capture(settings, name="ConvNextForImageClassification", mode="train")
    assert shapes(graph, "convolution", "input")[0] == (1, 3, 32, 32)
    assert {op.phase for op in graph.ops} == {"forward", "backward"}


def test_both_towers_of_clip(capture):
    """40 tokens and 2 x 2 patches and a class token; in training their contrastive loss."""
    graph = capture(CLIP, mode="train")
    assert {s[2] for s in shapes(graph, "attention", "query")} == {40, 5}
    assert any(op.name.endswith("backward") for op in graph.ops)


def test_llava_sees(capture):
    """The vision tower runs, its 4 patches go into the text, and nothing is said to be left out."""
    graph = capture(LLAVA, mode="train", seq=16)
    assert {s[2] for s in shapes(graph, "attention", "query")} == {16, 5}
    assert any(op.module.startswith("model.vision_tower") for op in graph.ops)
    assert "one image an example, its tokens among those of the sequence" in graph.assumptions


def test_the_language_model_of_a_larger_one(capture):
    """Llama 4's whole settings without a class: its language model, of the width of its text."""
    text = {
        **TEXT, "model_type": "llama4_text", "head_dim": 16, "intermediate_size_mlp": 48,
        "num_local_experts": 2, "attention_chunk_size": 40, "interleave_moe_layer_step": 1,
    }  # fmt: skip
    vision = {**VISION, "model_type": "llama4_vision_model"}
    settings = {"model_type": "llama4", "text_config": text, "vision_config": vision}
    graph = capture(settings, seq=16)
    assert graph.ops[-1].outputs[0].shape[-1] == 64
    assert {s[1:] for s in shapes(graph, "attention", "query")} == {(2, 16, 16)}


MUSICGEN = {
    "model_type": "musicgen",
    "text_encoder": {
        "model_type": "t5", "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 1, "num_heads": 2,
        "vocab_size": 64,
    },
    "audio_encoder": {"model_type": "encodec", "num_filters": 4, "hidden_size": 16},
    "decoder": {
        "model_type": "musicgen_decoder", "hidden_size": 32, "ffn_dim": 48, "vocab_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_codebooks": 4, "pad_token_id": 0,
        "bos_token_id": 0,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "mode"),
    [("MusicgenForCausalLM", "train"), ("MusicgenForConditionalGeneration", "infer")],
)
def test_tokens_of_several_codebooks(name, mode, capture):
    """Music has four rows of 8 tokens a sequence, each with its embedding and its head."""
    graph = capture({**MUSICGEN, "architectures": [name]}, mode=mode, seq=8)
    heads = [op for op in graph.ops if op.module.startswith(("lm_heads", "decoder.lm_heads"))]
    assert sum(op.name in ("mm", "addmm") and op.phase == "forward" for op in heads) == 4
    assert "batch 1, 8 tokens a sequence in each of 4 codebooks" in graph.assumptions


def test_rwkv_is_one_op_a_layer(capture):
    """Its recurrence is a kernel on a GPU: forward and backward one op each, no loop."""
    settings = {"model_type": "rwkv", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64,
                "attention_hidden_size": 32, "context_length": 40}  # fmt: skip
    graph = capture(settings, mode="train", seq=16)
    names = [op.name for op in graph.ops]
    assert (names.count("wkv"), names.count("wkv_backward")) == (2, 2)
    assert shapes(graph, "wkv", "key") == [(1, 16, 32)] * 2


def test_a_tower_that_is_left_out_is_named(capture):
    """Qwen2-VL cuts its images by values: the text alone, in words."""
    settings = {
        "model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"],
        "text_config": {**TEXT, "rope_parameters": {"type": "mrope", "mrope_section": [2, 3, 3],
                                                    "rope_type": "default", "rope_theta": 1e4}},
        "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2},
    }  # fmt: skip
    graph = capture(settings, seq=16)
    assert not any("visual" in op.module for op in graph.ops)
    assert any(note.startswith("text alone, no images") for note in graph.assumptions)


def test_a_waveform(capture):
    """--seq is samples: 1,600 through strides of 8 and 8 are 24 frames of attention."""
    graph = capture(WAV2VEC2, name="Wav2Vec2ForCTC", seq=1600)
    assert shapes(graph, "attention", "query") == [(1, 2, 24, 16)]
    assert "no SpecAugment" in graph.assumptions


@pytest.mark.parametrize(
    ("settings", "lengths"),
    [(BART, {(40, 40)}), (SEEING, {(5, 5), (40, 40), (40, 5)})],
    ids=["text", "image"],
)
def test_encoders_with_decoders(settings, lengths, capture):
    """Each encoder gets its own kind of input, the decoder as many tokens as it has places for."""
    graph = capture(settings, mode="train")
    queries = shapes(graph, "attention", "query")
    found = {(q[2], k[2]) for q, k in zip(queries, shapes(graph, "attention", "key"), strict=True)}
    assert found == lengths


def test_a_spectrogram(capture):
    """60 frames of 8 filters, as the config says; 20 tokens of the decoder."""
    graph = capture(SPEECH, mode="train")
    assert shapes(graph, "convolution", "input")[0][-1] == 60
    assert graph.assumptions[0] == "batch 1, 20 tokens a sequence"


@pytest.mark.parametrize(
    ("head", "last"),
    [
        ("BertForTokenClassification", (40, 2)),
        ("BertForSequenceClassification", (1, 2)),
        ("BertForQuestionAnswering", (1, 40)),
        ("BertForMultipleChoice", (1, 4)),
        ("BertForMaskedLM", (40, 64)),
    ],
)
def test_heads_are_trained_on_what_they_take(head, last, capture):
    """Each gets labels of its own shape: what the loss is taken of says which."""
    graph = capture(BERT, name=head, mode="train")
    losses = [op for op in graph.ops if op.name == "log_softmax"]
    assert losses[0].reads[0].shape == last


def test_one_label_is_a_number(capture):
    """A head with one label is a regression: its labels are numbers."""
    graph = capture({**BERT, "num_labels": 1}, name="BertForSequenceClassification", mode="train")
    assert any(op.name == "mse_loss" for op in graph.ops)


def test_places_that_padding_takes(capture):
    """RoBERTa's 40 positions hold 38 tokens: those up to the padding's are no token's."""
    settings = {**BERT, "model_type": "roberta", "pad_token_id": 1}
    graph = capture(settings, name="RobertaForMaskedLM")
    assert graph.assumptions[0] == "batch 1, 38 tokens a sequence"


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        (BERT, {"name": "BertModel", "mode": "train"},
         "BertModel has no loss .* set 'architectures' .* to BertForPreTraining or Bert"),
        (WAV2VEC2, {"name": "Wav2Vec2ForCTC", "mode": "train"}, "labels of Wav2Vec2ForCTC are not"),
        ({**BERT, "architectures": [3]}, {}, r"list of class names, got \[3\]"),
        ({**BERT, "quantization_config": {"quant_method": "fp8"}}, {},
         r"quantization_config \(fp8\) cannot be captured; --dtype"),
        (RESNET, {"name": "ResNetModel", "seq": 8}, "ResNetModel takes images, not tokens, got 8"),
        (BERT, {"seq": 2**63}, "seq must be at most"),
        (BERT, {"seq": 2**31 - 1, "batch": 2**31 - 1}, "make no tensor"),
        ({"model_type": "time_series_transformer", "prediction_length": 4}, {},
         "takes past_values, .*, of which a config.json says nothing"),
    ],
)  # fmt: skip
def test_refusals_say_why(settings, options, message, capture):
    """In one line, with what to do instead."""
    with pytest.raises(InputError, match=message) as caught:
        capture(settings, **options)
    assert "\n" not in str(caught.value)


def test_quantised_weights_are_plain_ones_where_a_dtype_is_named(capture):
    """Named in the assumptions: neither ignored nor refused twice."""
    settings = {**BERT, "quantization_config": {"quant_method": "bitsandbytes"}}
    graph = capture(settings, name="BertForMaskedLM", dtype="bfloat16")
    assert any("(bitsandbytes) is left out: weights and products are plain bfloat16" in note
               for note in graph.assumptions)  # fmt: skip


def test_architectures_may_be_one_name(capture):
    """A string where the format has a list means that one class."""
    graph = capture({**BERT, "architectures": "BertForMaskedLM"})
    assert any(op.module.startswith("cls") for op in graph.ops)


def test_a_model_that_fails_says_what_it_was_given(capture):
    """The inputs stand in the message, and the way to bring others."""
    settings = {**CLIP["vision_config"], "image_size": 5}
    with pytest.raises(TargetError, match=r"it was given pixel_values \[1, 3, 5, 5\], and"):
        capture(settings)
