"""What one step of each example costs, worked out by hand from the architecture alone.

Neither Rooftile's formulas nor a counter of torch's stands behind these numbers. A multiply-add is
2 FLOP. A linear layer of ``n`` inputs and ``m`` outputs costs ``2 * n * m`` for each row: a model
costs 2 FLOP a row for every weight of its linear layers. Biases, norms and activations are no
matrix work.

Training is forward and backward. The backward of a matmul is two of the same size, one for each
factor: 3 times the forward in all. Nothing is saved at the first layer of a transformer: its input
comes from an embedding, which is trained. A convolution over the data itself (ResNet's stem, ViT's
patches, Whisper's first) has no gradient to hand on: 2 times its forward.

Attention is ``q k^T`` and ``p v``: ``4 * queries * keys * head_dim`` FLOP a head, dense. Where it
is causal over ``s`` tokens, ``s * (s + 1) / 2`` of the ``s * s`` pairs are needed. Its backward
computes the scores again and then four gradients: 5 matmuls for the forward's 2.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """Expected counts of one step.

    Attributes:
        parameters: Elements of all distinct parameters.
        matmul: Forward FLOP of the matmul family.
        attention_dense: Forward FLOP of attention, all pairs.
        attention: Forward FLOP of attention, needed pairs.
        convolution: Forward FLOP of convolutions.
        convolution_of_data: Part of it that reads the data itself.
    """

    parameters: int
    matmul: int
    attention_dense: int = 0
    attention: int = 0
    convolution: int = 0
    convolution_of_data: int = 0

    @property
    def matmul_training(self) -> int:
        """FLOP of the matmul family in a training step."""
        return 3 * self.matmul

    @property
    def attention_backward_dense(self) -> int:
        """Backward FLOP of attention, all pairs."""
        return 5 * self.attention_dense // 2

    @property
    def attention_backward(self) -> int:
        """Backward FLOP of attention, needed pairs."""
        return 5 * self.attention // 2

    @property
    def convolution_training(self) -> int:
        """FLOP of convolutions in a training step."""
        return 3 * self.convolution - self.convolution_of_data


def pairs(tokens: int) -> int:
    """Query-key pairs of causal attention."""
    return tokens * (tokens + 1) // 2


def llama_3_8b(batch: int, seq: int) -> Step:
    """32 layers of width 4096, 32 heads of 128 (8 of keys and values), feed-forward 14336."""
    # q and out 4096 × 4096, k and v 4096 × 1024, gate, up and down 4096 × 14336
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    head = 4096 * 128256
    return Step(
        # the embedding is not the head; two norms a layer and one at the end
        parameters=32 * (layer + 2 * 4096) + 2 * head + 4096,
        matmul=2 * batch * seq * (32 * layer + head),
        attention_dense=32 * 32 * batch * 4 * 128 * seq * seq,
        attention=32 * 32 * batch * 4 * 128 * pairs(seq),
    )


def mixtral_8x7b(batch: int, seq: int) -> Step:
    """Llama's shape with 8 experts a layer, 2 for each token, and 32,000 tokens."""
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    router = 4096 * 8
    expert = 3 * 4096 * 14336
    head = 4096 * 32000
    return Step(
        parameters=32 * (attention + router + 8 * expert + 2 * 4096) + 2 * head + 4096,
        # tokens × top-2 rows go through experts, wherever they are sent
        matmul=2 * batch * seq * (32 * (attention + router + 2 * expert) + head),
        attention_dense=32 * 32 * batch * 4 * 128 * seq * seq,
        attention=32 * 32 * batch * 4 * 128 * pairs(seq),
    )


def bert_base(batch: int, seq: int) -> Step:
    """12 layers of width 768, 12 heads of 64, feed-forward 3072, masked-language head."""
    layer = 4 * 768 * 768 + 2 * 768 * 3072
    # the head transforms each token once more before the vocabulary
    transform, vocabulary = 768 * 768, 768 * 30522
    biases = 4 * 768 + 3072 + 768
    norm = 2 * 768
    embeddings = (30522 + 512 + 2) * 768 + norm
    return Step(
        # the vocabulary's matrix is the embedding's: counted there; its bias is its own
        parameters=embeddings + 12 * (layer + biases + 2 * norm) + (transform + 768 + norm) + 30522,
        matmul=2 * batch * seq * (12 * layer + transform + vocabulary),
        # every token sees every token
        attention_dense=12 * 12 * batch * 4 * 64 * seq * seq,
        attention=12 * 12 * batch * 4 * 64 * seq * seq,
    )


def vit_l_16(batch: int, seq: int) -> Step:
    """24 layers of width 1024, 16 heads of 64, feed-forward 4096; 224² pixels in 16² patches.

    ``seq`` is not used: 14 × 14 patches and the class token make 197 tokens.
    """
    tokens = 14 * 14 + 1
    layer = 4 * 1024 * 1024 + 2 * 1024 * 4096
    biases = 4 * 1024 + 4096 + 1024
    norm = 2 * 1024
    head = 1024 * 1000
    patches = 14 * 14 * 1024 * 3 * 16 * 16
    return Step(
        parameters=(3 * 16 * 16 * 1024 + 1024)  # the patches' convolution
        + 1024  # the class token
        + tokens * 1024  # positions
        + 24 * (layer + biases + 2 * norm)
        + norm
        + head
        + 1000,
        # the head sees the class token alone
        matmul=2 * batch * (tokens * 24 * layer + head),
        attention_dense=24 * 16 * batch * 4 * 64 * tokens * tokens,
        attention=24 * 16 * batch * 4 * 64 * tokens * tokens,
        convolution=2 * batch * patches,
        convolution_of_data=2 * batch * patches,
    )


def mamba_130m(batch: int, seq: int) -> Step:
    """24 layers of width 768, inner width 1536, 16 states, step rank 48, convolution over 4."""
    # in 768 → 2 × 1536, to (step, B, C) 1536 → 48 + 2 × 16, step 48 → 1536, out 1536 → 768
    layer = 768 * 3072 + 1536 * (48 + 32) + 48 * 1536 + 1536 * 768
    # depthwise convolution and bias, the step's bias, A (one a state), D, the norm
    rest = 1536 * 4 + 1536 + 1536 + 1536 * 16 + 1536 + 768
    head = 768 * 50280
    return Step(
        # the head's weight is the embedding's
        parameters=24 * (layer + rest) + head + 768,
        matmul=2 * batch * seq * (24 * layer + head),
    )


def whisper_small(batch: int, seq: int) -> Step:
    """12 + 12 layers of width 768, 12 heads of 64, feed-forward 3072; ``seq`` decoder tokens.

    30 s of sound are 3000 frames of 80 bands; the second convolution halves them to 1500.
    """
    frames = 1500
    attention, feed_forward = 4 * 768 * 768, 2 * 768 * 3072
    biases_attention = 3 * 768  # keys have none
    biases_feed_forward = 3072 + 768
    norm = 2 * 768
    encoder = attention + biases_attention + feed_forward + biases_feed_forward + 2 * norm
    decoder = 2 * (attention + biases_attention) + feed_forward + biases_feed_forward + 3 * norm
    head = 768 * 51865
    first, second = 3 * 80 * 768, 3 * 768 * 768  # weights of the two convolutions over 3 frames
    # Encoder rows: its own layers, and keys and values of the decoder's cross attention (half of
    # its four matrices). Decoder rows: the rest.
    encoder_rows = 12 * (attention + feed_forward) + 12 * attention // 2
    decoder_rows = 12 * (attention + attention // 2 + feed_forward) + head
    heads = 12 * 12 * batch * 4 * 64
    cross = heads * seq * frames
    itself = heads * frames * frames
    return Step(
        parameters=first + 768 + second + 768
        + frames * 768 + 12 * encoder + norm
        + head + 448 * 768 + 12 * decoder + norm,  # the head's weight is the embedding's
        matmul=2 * batch * (frames * encoder_rows + seq * decoder_rows),
        attention_dense=itself + cross + heads * seq * seq,
        attention=itself + cross + heads * pairs(seq),
        convolution=2 * batch * (3000 * first + frames * second),
        convolution_of_data=2 * batch * 3000 * first,
    )  # fmt: skip


def t5_small(batch: int, seq: int) -> Step:
    """6 + 6 layers of width 512, 8 heads of 64, feed-forward 2048; ``seq`` tokens on both sides."""
    attention, feed_forward = 4 * 512 * 512, 2 * 512 * 2048
    head = 512 * 32128
    # 32 distances a head in the first layer of each side; norms have no bias
    encoder = 6 * (attention + feed_forward + 2 * 512) + 32 * 8 + 512
    decoder = 6 * (2 * attention + feed_forward + 3 * 512) + 32 * 8 + 512
    # Self-attention of both sides and the cross attention. The decoder's causality comes as part
    # of the bias that is added to the scores, not as a flag: no kernel can leave a pair out.
    heads = 3 * 6 * 8 * batch * 4 * 64 * seq * seq
    return Step(
        parameters=head + encoder + decoder,
        matmul=2
        * batch
        * seq
        * (6 * (attention + feed_forward) + 6 * (2 * attention + feed_forward) + head),
        attention_dense=heads,
        attention=heads,
    )


def gpt2_small(batch: int, seq: int) -> Step:
    """12 layers of width 768, 12 heads of 64, feed-forward 3072, 50,257 tokens, 1,024 positions."""
    layer = 4 * 768 * 768 + 2 * 768 * 3072
    biases = 4 * 768 + 3072 + 768
    norm = 2 * 768
    head = 768 * 50257
    return Step(
        # the head's weight is the embedding's
        parameters=head + 1024 * 768 + 12 * (layer + biases + 2 * norm) + norm,
        matmul=2 * batch * seq * (12 * layer + head),
        attention_dense=12 * 12 * batch * 4 * 64 * seq * seq,
        attention=12 * 12 * batch * 4 * 64 * pairs(seq),
    )


def resnet50(batch: int, seq: int) -> Step:
    """Stages of 3, 4, 6, 3 bottlenecks at 56, 28, 14, 7 pixels a side. ``seq`` is not used."""
    stem = 112 * 112 * 64 * 3 * 49
    macs, weights, norms, width = stem, 64 * 3 * 49, 64, 64
    for channels, blocks, side in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for block in range(blocks):
            # the first block of a stage still reads at the size of the stage before: its 3 × 3
            # convolution takes the stride. The first stage follows the pooling and has none.
            before = 2 * side if block == 0 and channels > 64 else side
            reduce, spatial, expand = width * channels, 9 * channels * channels, 4 * channels**2
            macs += before**2 * reduce + side**2 * (spatial + expand)
            weights += reduce + spatial + expand
            norms += channels + channels + 4 * channels
            if block == 0:  # the shortcut changes its width
                macs += side**2 * width * 4 * channels
                weights += width * 4 * channels
                norms += 4 * channels
            width = 4 * channels
    return Step(
        parameters=weights + 2 * norms + 2048 * 1000 + 1000,
        matmul=2 * batch * 2048 * 1000,
        convolution=2 * batch * macs,
        convolution_of_data=2 * batch * stem,
    )
