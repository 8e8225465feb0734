"""Files as benchdnn has them: the words of its options; and its own, where ``--benchdnn`` says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import skips
from benchdnn_files import count, drivers_in
from tilewright.cli.cases import Unread, cases_of
from tilewright.cli.knobs import Knobs
from tilewright.layout.tags import layout_of
from tilewright.problems import parse, parse_post_ops
from tilewright.testing.verify import Status

# Words of a file, and the cases that it asks for, without the driver and its descriptor.
WORDS = (
    ("reduction", "--sdt=f32,s8 --alg=reduction_max,MEAN --p=1 --eps=0.5 2x3:2x1", 4),
    ("binary", "--sdt=s8:u8 --ddt=f32 --stag=abx:axb --alg=ADD,binary_mul 2x3x4:2x3x4", 2),
    ("binary", "--sdt=f32:s8 --alg=SELECT --attr-post-ops=,relu 2x3x4:2x1x4", 2),
    ("eltwise", "--alpha=0,0.5 --beta=1 --alg=eltwise_round,elu --tag=axb,abx 2x3x4", 6),
    ("pool", "--alg=pooling_max --tag=axb --dt=u8,\\\nf32 --skip-impl=ref ic4ih6kh3", 2),
    ("conv", "--alg=direct,wino,auto --dir=FWD_I ic4ih6oc4kh3", 1),
    ("lnorm", "--tag=tnc,ntc --dir=BWD_DW --stat_tag=abx \\\n --flags=CH 2x3x4", 4),
    ("softmax", "--sdt=f32 --dtag=undef --alg=softmax_log --axis=0 5", 1),
    ("prelu", '--stag=abx:any,axb:axb --sdt=bf16:f32 2x3x4:1x3x1_n"name"', 2),
    ("concat", "--stag=axb:axb --dtag=undef --axis=1 2x3x4:2x5x4", 1),
    ("matmul", "--strides=:: --bia-dt=undef,f32 --bia_mask=2 --attr-fpmath=any:true 2x3:3x4", 2),
    ("ip", "--dir=FWD_B,BWD_WB --stag=ab,aBx8b --wtag=AB16b16a --dtag=ba mb2ic16oc5", 4),
    ("matmul", "--bia-dt=f32 --bia_mask=1,3 --attr-post-ops=,relu 2x3:3x4", 4),
    ("reduction", "--alg=sum,norm_lp_max --p=1,2 --eps=0.5 2x3:2x1", 3),
    (
        "sum",
        "--sdt=f32:s8:u8,s32:f32 --ddt=s8,f32 --stag=axb:abx,aBx8b --scales=0.5:2:1,4 2x3x4",
        8,
    ),
    ("bnorm", "--flags=C,CR,CHRA --attr-post-ops=,tanh mb2ic4ih3", 6),
    ("bnorm", "--dir=BWD_WB mb2ic4ih3", 2),
    ("ip", "--attr-post-ops=add:f32:3:ab+relu,mul:f32:common:ba ic16ih1oc5", 2),
    ("conv", "--dt=u8:s8:f32 --attr-zero-points=dst:common:3 ic4ih6oc4kh3", 1),
    ("bnorm", "--flags=CHR,R,CHA --dir=FWD_D,BWD_DW mb2ic4ih3", 9),
    ("concat", "--stag=axb:abx:undef,abx:abx:abx --axis=1 2x3x4:2x5x4:2x1x4", 2),
    ("matmul", "--stag=any,ab --wtag=ba --strides=8x1::,::16x1 4x8:8x6", 3),
    ("deconv", "--strides=:36x72x9x3x1: g2mb2ic4ih6oc6oh8kh3", 1),
    ("matmul", "--dt=u8:s8:s32 --attr-precomputed-reductions=src:per_tensor:s32:1x2 2x4:4x3", 1),
    ("lnorm", "--ss_dt=bf16,f32 --dir=FWD_D,BWD_DW --flags=CH 2x3x4", 6),
    ("softmax", "--attr-scales=src:common:0.5+dst:common:2 --attr-post-ops=relu,add:f32 2x3", 2),
    ("deconv", "--dir=BWD_WB --dt=bf16 mb2ic4ih6oc5oh8kh3", 2),
    ("deconv", "--dt=s8:s8:u8 --attr-scales=wei:per_oc+dst:common:2 g2mb2ic4ih6oc6oh8kh3", 1),
    ("zeropad", "--tag=aBx4b --dt=s8 2x3x4", 1),
    (
        "rnn",
        "--alg=VANILLA_LSTM --cfg=f32,bf16f32 --prop=FWD_I,FWD_D --activation=UNDEF "
        "--tag=abc:abdec:bac --direction=left2right,sum --trivial-strides=true,false "
        "--with-peephole=false --skip-nonlinear=true l1t2mb6_sic16_slc32",
        4,
    ),
    (
        "rnn",
        "--alg=VANILLA_LSTM --cfg=f16f32 --with-peephole=false,true --with-projection=true "
        "--l=0,1 --t=0 --flags=O l1t1mb3_sic17_slc34_dhc68_dic85",
        2,
    ),
    ("rnn", "--alg=LBR_AUGRU,VANILLA_AUGRU --attr-fpmath=bf16 --t=1,2 sic4", 4),
    ("sdpa", "--dt=f16,bf16 --scale=div 1x4x8x16:1x2x16x9:1x2x9x5", 2),
    ("sdpa", "--mask=none,buffer,buffer_1d,causal_top_left 1x2x8x16:1x2x16x9:1x2x9x16", 4),
    ("sdpa", "--scale=library,mul,0.5 1x2x8x16:1x2x16x9:1x2x9x16", 2),
    ("sdpa", "--alg=causal,bias --scale=0.5 1x2x8x16:1x2x9x16", 2),
    ("pool", "--dir=BWD_D --alg=max,avg_np --tag=axb ic16ih7kh3", 2),
)


@pytest.mark.parametrize(("driver", "words", "number"), WORDS)
def test_benchdnns_words(driver: str, words: str, number: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(words, encoding="utf-8")
    unread: list[Unread] = []
    cases = cases_of(Knobs(driver, batch=file), unread=unread)
    assert not unread and len({case.arguments() for case in cases}) == number
    for case in cases:
        case.op()


def test_what_words_mean(tmp_path: Path) -> None:
    def arguments(driver: str, words: str) -> list[str]:
        file = tmp_path / "file"
        file.write_text(words, encoding="utf-8")
        return [case.arguments() for case in cases_of(Knobs(driver, batch=file))]

    assert arguments("reduction", "--sdt=s8 --alg=reduction_max 2x3:2x1") == [
        "reduce --dt=s8:f32 --alg=max 2x3:2x1"
    ]
    assert arguments("binary", "--stag=abx:axb --sdt=s8:u8 --ddt=s8 --alg=SUB 2x3x4:2x3x4") == [
        "binary --dt=s8:u8:s8 --stag=abx --wtag=axb --alg=sub 2x3x4:2x3x4"
    ]
    assert arguments("eltwise", "--alpha=0.5 --beta=1 --alg=elu,abs --tag=axb 2x3x4") == [
        "eltwise --dt=f32 --stag=axb --dtag=axb --alg=elu:0.5 2x3x4",
        "eltwise --dt=f32 --stag=axb --dtag=axb --alg=abs 2x3x4",
    ]
    assert arguments("bnorm", "--dir=FWD_I --flags=C mb2ic4ih3") == [
        "bnorm --dt=f32 --flags=CI --eps=1e-05 mb2ic4ih3iw3"
    ]
    assert arguments("ip", '--dir=FWD_I --dtag=ab ic4ih3oc5n"fc"') == [
        "conv --dt=f32 --dtag=abx 'ic4ih3oc5kh3n\"fc\"'"
    ]
    assert arguments(
        "sum", "--sdt=f32:s8:f32 --ddt=s8 --stag=abx:axb:abx --scales=1:2:4 2x3x4"
    ) == [
        "binary --dt=f32:s8:s8 --stag=abx --wtag=axb --alg=add "
        "--attr-scales=src:common:1+src1:common:2 "
        "--attr-post-ops=linear:0.25+add:f32:per_tensor:abx+linear:4 2x3x4:2x3x4"
    ]
    assert arguments(
        "rnn", "--alg=LBR_GRU --cfg=bf16 --direction=concat --tag=abc:any:bac sic4"
    ) == ["rnn --dt=bf16 --stag=abc --dtag=bac --alg=LBR_GRU --order=concat l1t1mb2sic4slc4dhc4"]
    assert arguments(
        "rnn", "--alg=VANILLA_LSTM --with-peephole=true --l=1 --t=3 --mb=4 l2sic5dhc7dic5"
    ) == ["rnn --dt=f32 --alg=VANILLA_LSTM --order=left2right --flags=PR l1t3mb4sic5slc5dhc7dic5"]
    assert arguments("sdpa", "--mask=buffer_1d 1x4x8x16:1x2x16x9:1x2x9x5") == [
        "sdpa --dt=f32 --alg=bias --scale=0.0 --cap=0.0 --window=0 1x4x8x16:1x2x9x16:5:1x1x1x9"
    ]
    assert arguments("pool", "--dir=BWD_D --alg=pooling_max --dt=bf16 ic4ih6kh3") == [
        "maxpool --dir=BWD_D --dt=bf16:bf16:s32 ic4ih6kh3"
    ]
    # As in benchdnn, a file that another one reads changes its options.
    (tmp_path / "inner").write_text("--reset --dt=bf16 ic4ih6kh3", encoding="utf-8")
    assert arguments("pool", "--dt=f16 --batch=inner ic2ih6kh3") == [
        "pool --dt=bf16 --alg=max ic4ih6kh3",
        "pool --dt=bf16 --alg=max ic2ih6kh3",
    ]


def test_other_names_of_algorithms() -> None:
    texts = "eltwise_relu:0.5+binary_add:f32+SRELU:1+tanh_dst+eltwise_exp_use_dst_for_bwd"
    result = [parse_post_op.describe() for parse_post_op in parse_post_ops(texts)]
    assert result == ["relu:0.5", "add:f32", "soft_relu:1", "tanh", "exp"]
    pool = parse("pool", "ic4ih6kh3").with_alg("pooling_avg_include_padding")
    assert pool.algorithm == "avg_p"


def test_tags_of_low_rank() -> None:
    for tag in ("abx", "axb", "aBx16b", "x"):
        assert layout_of(tag, (5,)) == layout_of("a", (5,))
    assert layout_of("aCBx4b4c", (2, 8)) == layout_of("aB4b", (2, 8))
    assert layout_of("ntc", (2, 3, 4)) == layout_of("bac", (2, 3, 4))


@pytest.mark.parametrize(
    ("driver", "words", "message"),
    [
        ("matmul", "--strides=1:2:3:4 2x3:3x4", "--strides=1:2:3:4 is not available"),
        ("sum", "--strides=4x1:4x1 2x3", "--strides=4x1:4x1 is not available"),
        ("matmul", "--grouped=0:2:1+1 2x3:2x3x4", "--grouped=0:2:1+1 is not available"),
        ("shuffle", "--attr-post-ops=relu 2x3", "shuffle takes no --attr-post-ops"),
        ("reorder", "--oflag=s8s8_comp:1 2x3", "--oflag=s8s8_comp:1 is not available"),
        ("sdpa", "--mdt=f16 1x2x8x8:1x2x8x9:1x2x9x8", "--mdt=f16 is not available"),
        ("sdpa", "--strides=8x1: 1x2x8x8:1x2x9x8", "--strides=8x1: is not available"),
        ("rnn", "--cfg=u8u8u8u8 sic4", "--cfg=u8u8u8u8 is not available"),
        ("rnn", "--alg=VANILLA_GRU sic4dhc5", "sic is 4, dhc 5"),
    ],
)
def test_what_is_not_available(driver: str, words: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(words, encoding="utf-8")
    unread: list[Unread] = []
    assert not cases_of(Knobs(driver, batch=file), unread=unread)
    assert [str(line.error).startswith(message) for line in unread] == [True]


def test_a_part_of_benchdnns_own_files(request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--benchdnn")
    if folder is None:
        skips.lacking("benchdnn's files are not here")
    # Of convolutions there are half a million lines.
    drivers = [driver for driver in drivers_in(Path(folder)) if driver[0] != "conv"]
    counts = [count(driver, files, 3, random.Random(1)) for driver, files in drivers]
    assert sum(counted.cases[Status.PASSED] for counted in counts) > len(counts)
    assert [case for counted in counts for case in counted.wrong] == []
