"""Two lists of what goes wrong, complete: odd inputs by what is written, beliefs by what is believed, with their tests.

`test_user_cases_inputs` and `test_user_cases_beliefs` number their tests by these lists.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
INPUTS = {
    1: ("an exponent that YAML takes for text",
        "user_cases_inputs:c1_a_number_with_its_unit_is_read_however_it_is_written"),
    2: ("a PCI address that YAML takes for a number",
        "user_cases_inputs:c2_unquoted_addresses_are_no_numbers_in_base_60"),
    3: ("a name that YAML takes for false or eight", "user_cases_inputs:refused_with_what_works"),
    4: ("bits for bytes, or neither", "user_cases_inputs:c4_bits_and_bytes",
        "doubts_servers:a_doubt_and_what_nearly_is_one"),
    5: ("transfers and lanes for bytes", "user_cases_inputs:c5_transfers_are_no_bytes",
        "units_refused:a_width_without_a_generation_and_too_wide_ones"),
    6: ("a headline of both directions", "user_cases_inputs:c6_a_headline_of_both_directions_is_refused"),
    7: ("one rate for two directions", "user_cases_inputs:c7_one_value_for_both_ways_and_two",
        "topology_resources:asymmetric_c2c", "doubts_servers:a_doubt_and_what_nearly_is_one"),
    8: ("a NUMA node that is not said, or -1", "doubts_servers:a_doubt_and_what_nearly_is_one",
        "read_nccl_topology:numa_nodes_count_threads_and_an_empty_mask_is_unknown"),
    9: ("the rate of an idle link", "user_cases_inputs:c9_an_idle_link_is_doubted",
        "doubts_servers:a_rate_that_idle_links_report",
        "read_hwloc:an_idle_gpus_link_is_unknown_and_its_rate_at_the_dump_a_fact"),
    10: ("a rate of zero, below it, none, or infinite", "user_cases_inputs:refused_with_what_works"),
    11: ("sizes and counts that cannot be", "user_cases_inputs:c11_counts_and_sizes_of_a_plan",
         "sweep_broken:whole_numbers_beyond_64_bits_stay_exact"),
    12: ("commas, fractions, about", "user_cases_inputs:refused_with_what_works"),
    13: ("a key twice in one map", "user_cases_inputs:refused_with_what_works"),
    14: ("a name twice, links side by side", "user_cases_inputs:c14_a_bundle_of_links",
         "user_cases_inputs:refused_with_what_works", "doubts_servers:a_doubt_and_what_nearly_is_one"),
    15: ("rings, and a link to itself", "user_cases_inputs:c15_rings_are_legal",
         "user_cases_inputs:refused_with_what_works"),
    16: ("parts that nothing joins", "user_cases_inputs:c16_a_tensor_without_a_way",
         "topology:disconnected_parts_say_what_is_reachable"),
    17: ("a name that there is not, and odd spaces", "user_cases_inputs:refused_with_what_works"),
    18: ("tabs, byte order marks, two documents", "user_cases_inputs:c18_a_byte_order_mark_is_read_over",
         "user_cases_inputs:refused_with_what_works"),
    19: ("anchors, merges, bombs of aliases", "user_cases_inputs:c19_merge_keys_work_and_bombs_do_not",
         "documents:anchors_and_merges", "documents:two_merges_are_refused"),
    20: ("names of any letters, and cut by a comment", "user_cases_inputs:c20_names_of_any_letters",
         "plan_file:byte_order_mark_line_ends_and_other_alphabets"),
    21: ("a slice with the rates of the whole card", "doubts_servers:a_doubt_and_what_nearly_is_one"),
    22: ("unified memory drawn as two", "user_cases_inputs:c22_one_memory_for_both",
         "doubts_servers:one_memory_drawn_as_two"),
    23: ("a set of drives faster than its uplink, or no stripe", "doubts_servers:a_doubt_and_what_nearly_is_one",
         "user_cases_weights:b34_drives_beyond_the_gpus_own_link"),
    24: ("shares above one", "user_cases_inputs:refused_with_what_works",
         "doubts_servers:a_share_with_a_percent_sign_in_a_plan"),
    25: ("bits a weight for bytes, parameters for bytes", "user_cases_inputs:c25_sizes_need_their_unit",
         "model_weights:llama_8b_in_q4_k_m_is_about_4_9_bits"),
    26: ("memory faster than its platform, slots for channels", "doubts_servers:a_doubt_and_what_nearly_is_one",
         "user_cases_experts:b05_memory_declared_faster_than_the_processor_runs_it"),
    27: ("a measurement above the ceiling", "user_cases_inputs:c27_a_measurement_above_the_ceiling_is_loud"),
    28: ("milliseconds for seconds", "user_cases_inputs:c28_times_need_their_unit",
         "doubts_servers:a_doubt_and_what_nearly_is_one"),
    29: ("another tool's figure without its unit", "read_vllm:v0_with_weights_in_host_memory"),
}  # fmt: skip
BELIEFS = {
    1: ("NVLink's headline is one way", "user_cases_inputs:c6_a_headline_of_both_directions_is_refused",
        "user_cases_parallel:b10_six_hundred_is_both_directions"),
    2: ("PCIe 4 x16 is 64 GB/s", "user_cases_inputs:c6_a_headline_of_both_directions_is_refused",
        "units:pcie_encoding"),
    3: ("a bridge of two cards is as fast as that of two servers",
        "user_cases_beliefs:d3_the_bridge_of_two_3090_carries_56_each_way"),
    4: ("what is mapped is read at each token", "user_cases_weights:b06_a_file_larger_than_memory"),
    5: ("a fast second run proves a fast drive", "read_drive_rates:fio_through_the_page_cache_gives_no_rate_of_a_drive",
        "replay_cli:the_page_cache_that_served_reads_is_told",
        "user_cases_kv:b23_a_warm_test_hits_the_gpu_and_not_the_tier"),
    6: ("links behind one port add up", "user_cases_beliefs:d6_links_that_share_an_uplink_do_not_add_up",
        "user_cases_parallel:b14_eight_gpus_that_read_host_memory_together"),
    7: ("n drives are n times as fast", "doubts_servers:a_doubt_and_what_nearly_is_one",
        "user_cases_weights:b34_drives_beyond_the_gpus_own_link", "amplification:four_drives_behind_a_switch"),
    8: ("two sockets double the rate",
        "user_cases_beliefs:d8_the_far_half_of_what_a_socket_reads_comes_over_the_link_between_them",
        "user_cases_experts:b04_a_copy_of_the_weights_on_each_socket"),
    9: ("GPUs in turn add their memories' rates", "user_cases_beliefs:d9_memory_rates_of_gpus_in_turn_do_not_add_up"),
    10: ("more lanes speed up what stays where it is",
         "user_cases_beliefs:d10_lanes_do_not_matter_for_layers_that_stay_where_they_are",
         "user_cases_parallel:b27_width_does_not_matter_for_layers_in_turn"),
    11: ("NVLink helps what comes from the host",
         "user_cases_beliefs:d11_nvlink_does_not_help_what_comes_from_the_host"),
    12: ("prefetch hides everything", "user_cases_beliefs:d12_prefetch_hides_no_more_than_there_is_compute"),
    13: ("equal bytes overlap well", "user_cases_beliefs:d13_equal_bytes_beside_unequal_layers_are_not_hidden"),
    14: ("offloaded experts cross PCIe", "user_cases_beliefs:d14_experts_that_run_on_the_cpu_do_not_cross_the_link"),
    15: ("active parameters tell the bytes",
         "user_cases_beliefs:d15_the_share_of_active_parameters_is_not_that_of_the_bytes",
         "user_cases_experts:b30_a_mixture_far_under_its_bandwidth"),
    16: ("nine layers of ten are nine tenths of the speed",
         "user_cases_beliefs:d16_a_tenth_of_the_layers_on_a_slow_tier_costs_two_thirds"),
    17: ("tokens/s are averaged", "read_llama_bench:json_lines_have_the_mean_time_itself"),
    18: ("a hit is cheaper than computing again", "kv_plans:load_against_recompute",
         "user_cases_kv:b22_keys_and_values_of_32_heads_are_too_fat_to_offload"),
    19: ("bus bandwidth above the line rate is a mistake",
         "import_worked_out:a_collective_above_the_links_is_a_contradiction"),
    20: ("a copy reads as fast as memory is read", "doubts_servers:a_doubt_and_what_nearly_is_one",
         "measure_kernels:a_loop_moves_the_bytes_that_are_counted"),
    21: ("one thread, or each slot, tells of a channel", "doubts_servers:a_doubt_and_what_nearly_is_one",
         "user_cases_experts:b33_populated_channels_are_what_counts",
         "user_cases_experts:b03_threads_and_uneven_dimms"),
    22: ("all copies between devices are as fast, either way", "user_cases_phases:b15_directions_of_one_link",
         "read_gpu_topology:directions_stay_apart_and_unknown_pairs_stay_unknown"),
    23: ("full duplex is twice", "user_cases_beliefs:d23_both_directions_of_a_link_read_and_write_one_memory",
         "user_cases_parallel:b13_full_duplex_is_not_twice"),
    24: ("pinned memory is free", "user_cases_weights:b17_pinning_takes_memory",
         "user_cases_weights:b18_pages_locked_at_each_use"),
    25: ("what is slow is the hardware", "user_cases_weights:b07_a_hard_disk_and_a_ram_disk",
         "user_cases_kv:b21_no_edge_is_as_slow_as_a_disk_tier_that_takes_40_s"),
    26: ("an idle link reads its speed", "user_cases_inputs:c9_an_idle_link_is_doubted"),
    27: ("a drive's rate reaches the GPU",
         "user_cases_beliefs:d27_two_hops_write_and_read_host_memory_and_the_slower_one_binds"),
    28: ("processors of one memory add up", "user_cases_beliefs:d28_processors_of_one_memory_share_its_rate",
         "user_cases_phases:b29_a_dense_70b_in_unified_memory"),
    29: ("few active parameters need little room",
         "user_cases_beliefs:d29_all_weights_of_a_mixture_need_room_though_few_are_read"),
    30: ("a small benchmark picks the way", "validation_page:the_report_is_the_commands_own",
         "user_cases_beliefs:d30_the_way_that_is_faster_with_one_request_is_slower_with_many"),
    31: ("uniform traces prove that caches are useless", "experts:uniform_routing",
         "user_cases_experts:b31_an_expert_cache_on_the_gpu"),
    32: ("small copies scale with the rate", "user_cases_beliefs:d32_many_small_copies_take_their_latency_each",
         "user_cases_parallel:rpc_over_ethernet_latency_before_bandwidth"),
}  # fmt: skip


@cache
def names_in(module: str) -> frozenset[str]:
    tree = ast.parse((HERE / f"test_{module}.py").read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("cases", "count", "letter"), [(INPUTS, 29, "c"), (BELIEFS, 32, "d")])
def test_each_has_its_tests(cases, count, letter):
    assert list(cases) == list(range(1, count + 1))
    for number, (what, *tests) in cases.items():
        assert what and tests, number
        for one in tests:
            module, name = one.split(":")
            assert f"test_{name}" in names_in(module), f"{number}: {one}"
    numbered = {one for module in ("user_cases_inputs", "user_cases_beliefs") for one in names_in(module)
                if one.removeprefix(f"test_{letter}")[:1].isdigit()}  # fmt: skip
    listed = {f"test_{one.split(':')[1]}" for _, *tests in cases.values() for one in tests}
    assert numbered <= listed
