"""A pilot's devices, in the numbering that its environment has: never others, and none twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.agent.devices import devices_of, names_in, seen, told_to_use_cpu, vendor_of

NAMES = st.one_of(
    st.integers(0, 200).map(str),
    st.from_regex(r"GPU-[0-9a-f]{8}-[0-9a-f]{4}", fullmatch=True),
    st.from_regex(r"MIG-[0-9a-f]{8}-[0-9a-f]{4}", fullmatch=True),
)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("0,1", ("0", "1")),
        ("3", ("3",)),
        (" 2 , 5", ("2", "5")),
        ("0-3", ("0", "1", "2", "3")),
        ("1,4-5", ("1", "4", "5")),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",)),
        ("MIG-GPU-5c89852c/1/0,MIG-41b3", ("MIG-GPU-5c89852c/1/0", "MIG-41b3")),
        ("0.0,0.1", ("0.0", "0.1")),
        ("1,1,2", ("1", "2")),
        ("0,-1,1", ("0",)),
        ("NoDevFiles", ()),
        ("-1", ()),
        ("", ()),
        ("all", ()),
    ],
)
def test_names_are_read_as_the_vendors_read_them(value: str, names: tuple[str, ...]) -> None:
    assert names_in(value) == names


@given(st.lists(NAMES, min_size=1, max_size=16, unique=True), st.sampled_from(["", "nvidia"]), st.data())
def test_workers_get_what_the_pilot_got_and_each_another(
    names: list[str], vendor: str, data: st.DataObject
) -> None:
    found = devices_of({"CUDA_VISIBLE_DEVICES": ",".join(names)}, vendor)
    assert found.kind == "cuda" and [device.name for device in found.all] == names
    each = [seen([device]) for device in found.all]
    assert each == [{"CUDA_VISIBLE_DEVICES": name} for name in names]
    some = data.draw(st.lists(st.sampled_from(found.all), min_size=1, unique=True))
    assert seen(some) == {"CUDA_VISIBLE_DEVICES": ",".join(device.name for device in some)}


def test_with_cgroups_the_hint_says_which_devices_of_the_node_these_are() -> None:
    found = devices_of({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"}, "nvidia")
    assert [(device.name, device.hardware) for device in found.all] == [("0", "2"), ("1", "3")]
    without = devices_of({"CUDA_VISIBLE_DEVICES": "2,3", "SLURM_JOB_GPUS": "2-3"}, "nvidia")
    assert [(device.name, device.hardware) for device in without.all] == [("2", "2"), ("3", "3")]
    fewer = devices_of({"CUDA_VISIBLE_DEVICES": "5", "SLURM_JOB_GPUS": "2,3"}, "nvidia")
    assert fewer.all[0].hardware == "5", "a hint that does not fit is none"


def test_on_amd_machines_what_rocr_leaves_is_counted_from_0() -> None:
    slurm = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"), "4,5")
    found = devices_of(slurm, "amd")
    assert found.kind == "rocm" and [device.name for device in found.all] == ["4", "5"]
    one = {"ROCR_VISIBLE_DEVICES": "5", "CUDA_VISIBLE_DEVICES": "0", "GPU_DEVICE_ORDINAL": "0"}
    assert seen(found.all[1:]) == one
    assert seen(found.all)["CUDA_VISIBLE_DEVICES"] == "0,1"
    below = devices_of({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, "amd")
    assert [device.name for device in below.all] == ["5"]
    alone = devices_of({"HIP_VISIBLE_DEVICES": "2,3"}, "amd")
    assert [seen([device]) for device in alone.all] == [{"HIP_VISIBLE_DEVICES": n} for n in "23"]


def test_batch_systems_set_the_variables_of_all_vendors() -> None:
    all_of_them = {"CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "1", "ZE_AFFINITY_MASK": "1"}
    assert devices_of(all_of_them, "nvidia").kind == devices_of(all_of_them).kind == "cuda"
    assert devices_of({"ZE_AFFINITY_MASK": "0.1,1.0"}).kind == "level zero"
    assert devices_of({"ROCR_VISIBLE_DEVICES": "1"}, "nvidia").all == ()


def test_simulated_devices_are_the_only_ones_even_where_they_are_none() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "SIMULATED_VISIBLE_DEVICES": "0"}
    assert devices_of(env, "amd").kind == "simulated"
    assert devices_of({**env, "SIMULATED_VISIBLE_DEVICES": ""}, "nvidia").all == ()


def test_nothing_is_guessed() -> None:
    assert devices_of({}).all == devices_of({"SLURM_JOB_GPUS": "0,1"}, "nvidia").all == ()


def test_the_vendor_is_known_from_its_driver() -> None:
    assert vendor_of({"/dev/kfd": True}) == "amd" and vendor_of({}) == ""
    assert vendor_of({"/dev/nvidiactl": True, "/dev/kfd": True}) == "nvidia"


def test_where_no_driver_says_whose_devices_they_are_every_variable_names_the_workers_own() -> None:
    everyones = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
    found = devices_of(dict.fromkeys(everyones, "2,3"))
    assert [seen([device]) for device in found.all] == [dict.fromkeys(everyones, name) for name in "23"]
    other = devices_of({"CUDA_VISIBLE_DEVICES": "2,3", "ZE_AFFINITY_MASK": "0"})
    assert seen(other.all[:1]) == {"CUDA_VISIBLE_DEVICES": "2"}, "that is not said of these devices"


def test_accelerate_is_told_to_use_the_cpu_where_a_worker_sees_no_gpu() -> None:
    told, nvidia = {"ACCELERATE_USE_CPU": "true"}, {"/dev/nvidiactl": True}
    assert told_to_use_cpu({}, {"/dev/nvidiactl": False}) == told
    assert told_to_use_cpu({"SIMULATED_VISIBLE_DEVICES": "0,1"}, {}) == told, "these compute nothing"
    for hidden in ("", "-1", "NoDevFiles"):
        assert told_to_use_cpu({"CUDA_VISIBLE_DEVICES": hidden}, nvidia) == told
    assert told_to_use_cpu({}, nvidia) == {}, "PyTorch may find one"
    assert told_to_use_cpu({"CUDA_VISIBLE_DEVICES": "0"}, nvidia) == {}
    assert (
        told_to_use_cpu({"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "1"}, {"/dev/kfd": True}) == {}
    )
