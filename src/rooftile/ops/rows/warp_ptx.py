"""PTX with which the warps of a cluster tell each other what they know of a row.

Each warp combines the numbers of its lanes and sends the result into a slot of every program of the
cluster (into its program's one slot where there is no cluster); each warp waits for all slots of a
row and combines them, in one order everywhere. So no warp waits at a barrier, and one that has sent
goes on: the numbers of a row can be asked for a row later.
"""

from __future__ import annotations

from rooftile.ops.rows.cluster import barrier_bytes

LOG2_E = "0f3FB8AA3B"  # float32 of log2(e), as PTX writes it
_SETS = 4  # who sends row i + 4 knows that all have read row i
_BARRIERS = barrier_bytes(_SETS)
_SLOT_BYTES = {"moments": 16, "softmax": 8, "sums": 4}
_VECTOR = {"moments": "v4.f32", "softmax": "v2.f32", "sums": "f32"}
_LEAST = "0fFF7FFFFF"  # the least finite float32


def exchange_bytes(cluster: int, warps: int, combine: str, teams: int = 1) -> int:
    """Shared memory of barriers and slots."""
    return teams * (_BARRIERS + _SETS * cluster * warps * _SLOT_BYTES[combine])


def arrival(cluster: int, warps: int, combine: str, teams: int = 1) -> str:
    """PTX for a kernel's start: barriers for what will be sent. Gives their address."""
    received = cluster * warps * _SLOT_BYTES[combine]
    apart = exchange_bytes(cluster, warps, combine)
    at = [f"[slots+{team * apart + 8 * i}]" for team in range(teams) for i in range(_SETS)]
    lines = [
        "{ .reg .pred p; .reg .b32 t;",
        f".shared .align 16 .b8 slots[{exchange_bytes(cluster, warps, combine, teams)}];",
        "mov.u32 t, %tid.x; setp.eq.u32 p, t, 0;",
        *[f"@p mbarrier.init.shared.b64 {a}, {1 if cluster > 1 else warps};" for a in at],
    ]
    if cluster > 1:
        lines += [
            *[f"@p mbarrier.arrive.expect_tx.shared.b64 _, {a}, {received};" for a in at],
            "@p fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed.aligned;",
        ]
    if teams > 1:  # a team's own
        lines.append(f"mov.u32 t, %tid.x; shr.u32 t, t, {(32 * warps).bit_length() - 1};")
        lines.append(f"mul.lo.u32 t, t, {apart}; mov.u32 $0, slots; add.u32 $0, $0, t;")
        return " ".join([*lines, "}"])
    return " ".join([*lines, "mov.u32 $0, slots; }"])


def started(cluster: int) -> str:
    """PTX: until every program of the cluster runs, and its barriers are there."""
    wait = "barrier.cluster.wait.acquire.aligned;" if cluster > 1 else "bar.sync 0;"
    return f"{{ {wait} mov.u32 $0, 0; }}"


def sending(cluster: int, warps: int, combine: str) -> str:
    """PTX that combines a warp's numbers and sends them to every program of its cluster.

    Operands: the numbers (of moments behind them 1 / the warp's elements, and their number), the
    slots' address, the row's count, and whether there is such a row.
    """
    given = {"moments": 3, "softmax": 2, "sums": 1}[combine]
    last = given + (2 if combine == "moments" else 0)
    base, step, live = (f"${last + i}" for i in (1, 2, 3))
    names = {"moments": "msz", "softmax": "ms", "sums": "s"}[combine]
    numbers = {"moments": "{$5, m, s, s}", "softmax": "{m, s}", "sums": "s"}[combine]
    lines = [
        "{ .reg .pred p; .reg .b32 t, r, a, far, set; .reg .f32 m, s, z, d, w;",
        *[f"mov.f32 {name}, ${i + 1};" for i, name in enumerate(names)],
        *combining(32, combine, "$4"),
        "mov.u32 t, %laneid; mov.u32 a, %tid.x; shr.u32 a, a, 5; mov.u32 r, %cluster_ctarank;",
        f"and.b32 a, a, {warps - 1};",
        f"and.b32 set, {step}, {_SETS - 1}; mad.lo.u32 far, set, 8, {base};",
        f"mad.lo.u32 a, r, {warps}, a; mad.lo.u32 a, set, {cluster * warps}, a;",
        f"mad.lo.u32 a, a, {_SLOT_BYTES[combine]}, {base}; add.u32 a, a, {_BARRIERS};",
        f"setp.lt.u32 p, t, {cluster}; setp.ne.and.b32 p, {live}, 0, p;",
    ]
    vector = _VECTOR[combine]
    if cluster > 1:
        lines += [
            "@p mapa.shared::cluster.u32 a, a, t; @p mapa.shared::cluster.u32 far, far, t;",
            f"@p st.async.shared::cluster.mbarrier::complete_tx::bytes.{vector} [a], {numbers}, "
            "[far];",
        ]
    else:
        lines.append(
            f"@p st.shared.{vector} [a], {numbers}; @p mbarrier.arrive.shared.b64 _, [far];"
        )
    return " ".join([*lines, "mov.u32 $0, 0; }"])


def receiving(cluster: int, warps: int, combine: str) -> str:
    """PTX that waits for the numbers of a row and combines them.

    Operands: 1 / the row's elements, the slots' address, the row's count.
    """
    size, slots = _SLOT_BYTES[combine], cluster * warps
    received, lanes = slots * size, min(slots, 32)
    lines = [
        "{ .reg .pred p, q; .reg .b32 t, a, bar, set, turn; .reg .f32 m, s, z, d, w;",
        f"and.b32 set, $4, {_SETS - 1}; bfe.u32 turn, $4, 2, 1;",
        f"mad.lo.u32 bar, set, 8, $3; mad.lo.u32 a, set, {received}, $3;",
        "WAIT: mbarrier.try_wait.parity.shared.b64 q, [bar], turn; @!q bra WAIT;",
    ]
    if cluster > 1:
        lines += [
            f"mov.u32 t, %tid.x; and.b32 t, t, {32 * warps - 1}; setp.eq.u32 p, t, 0;",
            f"@p mbarrier.arrive.expect_tx.shared.b64 _, [bar], {received};",
        ]
    lines += [
        f"mov.u32 t, %laneid; and.b32 t, t, {lanes - 1}; mad.lo.u32 a, t, {size}, a;",
        f"add.u32 a, a, {_BARRIERS};",
        *_gathered(slots // lanes, lanes, combine),
        *combining(lanes, combine, "$2"),
    ]
    first = "s" if combine == "sums" else "m"
    return " ".join([*lines, f"mov.f32 $0, {first}; mov.f32 $1, s; }}"])


def _gathered(each: int, lanes: int, combine: str) -> list[str]:
    """PTX that loads a lane's slots and combines them into m, s and z."""
    size = _SLOT_BYTES[combine]
    at = [f"[a+{i * lanes * size}]" for i in range(each)]
    load = f"ld.shared.{_VECTOR[combine]}"
    if combine == "sums":
        lines = [f"{load} s, {at[0]};"]
        for a in at[1:]:
            lines.append(f"{load} d, {a}; add.f32 s, s, d;")
        return lines
    if combine == "softmax":
        lines = [f"{load} {{m, s}}, {at[0]};"]
        for a in at[1:]:
            lines.append(f"{load} {{z, d}}, {a}; max.f32 w, m, z;")
            lines.append(f"sub.f32 m, m, w; mul.f32 m, m, {LOG2_E}; ex2.approx.ftz.f32 m, m;")
            lines.append(f"sub.f32 z, z, w; mul.f32 z, z, {LOG2_E}; ex2.approx.ftz.f32 z, z;")
            lines.append("mul.f32 s, s, m; fma.rn.f32 s, d, z, s; mov.f32 m, w;")
        return lines
    lines = [f"{load} {{m, s, z, d}}, {at[0]};"]
    if each > 1:  # pairs as Chan et al.: n, mean, squares
        lines.append(".reg .f32 n, u, v, e, f;")
    for a in at[1:]:
        lines.append(f"{load} {{n, u, v, d}}, {a}; add.f32 e, m, n; max.f32 f, e, 0f3F800000;")
        lines.append("rcp.approx.ftz.f32 f, f; mul.f32 f, f, n; sub.f32 u, u, s;")
        lines.append("mul.f32 d, u, f; add.f32 s, s, d; mul.f32 d, d, m; add.f32 z, z, v;")
        lines.append("fma.rn.f32 z, d, u, z; mov.f32 m, e;")
    return lines


def combining(lanes: int, combine: str, inverse: str) -> list[str]:
    """PTX that combines what as many lanes hold: s of sums; m and s of softmax; m, s, z of moments.

    Args:
        lanes: A power of two.
        combine: ``"sums"``: of s. ``"softmax"``: a maximum m, and a sum s of exponentials relative
            to it. ``"moments"``: how many elements, their mean and the sum of squares around it;
            gives the mean of all in m and the sum of squares around that in s
            (Chan et al. 1983, https://doi.org/10.1080/00031305.1983.10483115).
        inverse: Of moments, the operand that is 1 / the number of all.
    """
    lines: list[str] = []
    if combine == "moments":
        lines += ["mul.f32 w, m, s;", *_butterfly(lanes, "add", "w"), f"mul.f32 w, w, {inverse};"]
        # m first: beside a mean whose square is infinite, a lane with no elements has 0, not NaN
        lines.append("sub.f32 d, s, w; mul.f32 s, m, d; fma.rn.f32 s, s, d, z; mov.f32 m, w;")
    elif combine == "softmax":
        lines += [f"max.f32 m, m, {_LEAST};", "mov.f32 z, m;", *_butterfly(lanes, "max", "m")]
        lines.append(f"sub.f32 d, z, m; mul.f32 d, d, {LOG2_E}; ex2.approx.ftz.f32 d, d;")
        lines.append("mul.f32 s, s, d;")
    return lines + _butterfly(lanes, "add", "s")


def _butterfly(lanes: int, combine: str, name: str) -> list[str]:
    """Combine a register over groups of as many lanes; every lane gets the same bits."""
    lines = []
    for step in (1 << i for i in range(lanes.bit_length() - 1)):
        lines.append(f"shfl.sync.bfly.b32 d, {name}, {step}, 31, -1;")
        lines.append(f"{combine}.f32 {name}, {name}, d;")
    return lines


WARP_SUM = (  # of one number a lane
    " ".join(["{ .reg .f32 d, s; mov.f32 s, $1;", *_butterfly(32, "add", "s"), "mov.f32 $0, s; }"])
)


def exchange_options(cluster: int, warps: int, combine: str, teams: int = 1) -> dict[str, str]:
    """The pieces of PTX that a kernel takes; warps are those of one of a program's teams."""
    return {
        "ARRIVE": arrival(cluster, warps, combine, teams), "STARTED": started(cluster),
        "SEND": sending(cluster, warps, combine), "RECEIVE": receiving(cluster, warps, combine),
    }  # fmt: skip
