"""Each setting has a test that checks its effect."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.http.settings.check_value import FIELDS
from greenroom.schemas.settings.settings import (
    RELOADABLE,
    ModelSettings,
    Settings,
    Source,
    compare,
    opens_otherwise,
)

TESTS = Path(__file__).resolve().parents[2]

SHOWN_BY = {
    "models": "test_models_are_listed_in_the_operators_order",
    "model_settings": "test_a_models_tables_hold_for_it_alone",
    "host": "test_the_host_decides_on_which_addresses_it_listens",
    "port": "test_a_taken_port_is_an_error_at_once",
    "listen": "test_it_listens_on_further_addresses",
    "request_timeout": "test_an_overdue_answer_is_504_or_ends_with_an_error_in_every_protocol",
    "tls_certificate": "test_the_official_clients_read_streams_over_https",
    "tls_key": "test_an_unusable_certificate_ends_the_start_with_status_2",
    "api_key": "test_a_key_opens_in_each_header_that_clients_use",
    "api_key_file": "test_the_key_of_a_file_opens_and_a_bad_file_is_a_bad_setting",
    "open_loopback": "test_open_loopback_needs_no_key_but_for_operators_and_what_was_forwarded",
    "insecure": "test_insecure_lets_everybody_in_on_every_address",
    "isolate_prefixes": "test_isolated_keys_share_no_prefixes",
    "max_loaded_models": "test_a_model_that_is_held_is_never_unloaded_under_its_request",
    "max_batch": "test_requests_beyond_the_slots_wait_in_order_and_know_their_place",
    "max_queue": "test_requests_beyond_the_slots_wait_in_order_and_know_their_place",
    "queue_timeout": "test_a_wait_beyond_queue_timeout_fails_with_the_time_of_a_retry",
    "max_stall": "test_max_stall_bounds_the_chunks",
    "min_prefill_chunk": "test_min_prefill_chunk_is_computed_whatever_it_costs",
    "device": "test_a_device_that_is_not_there_is_refused",
    "dtype": "test_weights_take_the_type_that_was_asked_for",
    "kv_bits": "test_a_server_with_quantized_caches_answers_as_its_engine",
    "model_dir": "test_folders_of_one_and_two_levels_are_listed",
    "default": "test_default_means_the_first_of_a_list_that_can_be_loaded",
    "profiles": "test_a_profile_is_listed_and_answers_by_its_models_actor_with_its_own_defaults",
    "allow_downloads": "test_an_unlisted_hub_id_is_downloaded_only_if_that_is_allowed",
    "max_context": "test_max_context_bounds_prompt_and_answer_together",
    "prefix_cache_bytes": "test_the_prefix_cache_keeps_within_its_bytes_what_was_used_last",
    "prefix_cache_dir": "test_a_killed_server_remembers",
    "prefix_cache_disk_free_bytes": "test_computed_prompts_leave_prefix_cache_disk_free_bytes_of_the_disk",
    "prefix_cache_disk_bytes": "test_computed_prompts_take_no_more_disk_than_prefix_cache_disk_bytes",
    "speculation": "test_lookup_drafts_what_is_repeated_and_off_does_not",
    "draft_model": "test_usage_over_http_says_what_was_drafted",
    "memory_bytes": "test_a_model_larger_than_memory_bytes_is_a_507_that_frees_nothing",
    "adapter_bytes": "test_an_adapter_larger_than_adapter_bytes_is_refused",
    "kv_cache_bytes": "test_a_prompt_that_outgrows_kv_cache_bytes_is_refused",
    "db": "test_what_is_stored_is_found_by_the_next_system_and_the_files_are_its_users",
    "store_responses": "test_with_store_responses_off_no_content_is_kept",
    "store_max_bytes": "test_nothing_is_added_beyond_store_max_bytes_and_deleting_makes_room",
    "store_retention_days": "test_what_was_not_used_for_store_retention_days_is_deleted",
    "tool_injection": "test_without_injection_tools_are_refused",
    "system_prompt": "test_conversations_without_a_system_message_get_the_operators",
    "images_fetch": "test_what_is_named_by_its_address_is_fetched_for_every_protocol",
    "images_fetch_hosts": "test_what_is_named_by_its_address_is_fetched_for_every_protocol",
    "images_greedy": "test_what_shows_an_image_is_answered_greedily_in_every_protocol",
    "images_ids": "test_images_ids_number_images_and_append_their_table",
    "images_history": "test_with_history_last_a_message_with_images_is_answered_by_itself",
    "images_max_count": "test_of_many_images_the_newest_are_shown",
    "images_max_pages": "test_pages_of_all_documents_are_limited_together",
    "keep_awake": "test_the_machine_stays_awake_until_half_a_minute_after_the_last_request",
    "trust_remote_code": "test_code_of_a_folder_runs_only_with_trust_remote_code",
    "hosts": "test_a_model_too_large_for_one_machine_answers_over_two",
    "parallelism": "test_heads_that_ranks_cannot_share_are_refused_by_name",
    "shutdown_timeout": "test_a_shutdown_with_a_hung_worker_ends_within_the_shutdown_timeout",
    "log_format": "test_a_server_from_start_to_signal",
    "log_level": "test_flags_reach_the_server",
    "log_content": "test_prompts_and_answers_are_logged_only_if_asked_for",
    "explain": "test_explanations_can_be_switched_off",
    "inspect": "test_only_the_last_requests_are_kept",
    "remotes": "test_a_documented_stream_becomes_the_events_of_a_model",
    "routes": "test_a_fault_is_replaced_before_the_first_token_and_told_after_it",
    "local_only": "test_nothing_leaves_that_must_not",
    "mcp": "test_servers_of_the_settings_and_of_a_client_are_listed_and_tried",
    "mcp_config": "test_servers_of_the_settings_and_of_a_client_are_listed_and_tried",
    "allow_mcp_urls": "test_servers_named_by_address_obey_the_rules_and_their_secrets_stay",
    "audit": "test_without_audit_there_is_none",
    "trace_content": "test_a_streamed_loop_of_tools_is_one_tree_at_a_collector",
    "audit_content": "test_content_is_kept_only_if_the_operator_asks_for_it",
    "audit_days": "test_a_repeated_batch_is_counted_once_and_old_and_too_many_rows_are_deleted",
    "audit_rows": "test_a_repeated_batch_is_counted_once_and_old_and_too_many_rows_are_deleted",
    "allowed_hosts": "test_flags_reach_the_server",
    "allowed_origins": "test_flags_reach_the_server",
    "max_body_bytes": "test_flags_reach_the_server",
    "max_upload_bytes": "test_a_file_over_the_limit_is_refused_at_once_or_when_it_is_passed",
    "max_connections": "test_connections_over_the_limit_are_told_to_try_later",
    "idle_connection": "test_idle_connections_are_reaped",
    "temperature": "test_a_sampling_setting_holds_until_a_request_says_otherwise",
    "top_p": "test_a_sampling_setting_holds_until_a_request_says_otherwise",
    "top_k": "test_a_sampling_setting_holds_until_a_request_says_otherwise",
    "min_p": "test_a_sampling_setting_holds_until_a_request_says_otherwise",
    "max_tokens": "test_max_tokens_of_the_settings_end_answers_until_a_request_says_otherwise",
}
"""The test of each setting's effect."""

SHOWN_FOR_A_MODEL_BY = {
    "adapter": "test_a_path_is_taken_from_the_operator_alone",
    "alias": "test_aliases_and_patterns_are_answered_by_the_model_that_they_mean",
    "tool_parser": "test_the_operators_parser_of_calls_goes_before_the_records",
    "thinking_parser": "test_the_operators_parser_of_thoughts_goes_before_the_records",
    "chat_template": "test_a_models_own_chat_template_can_be_replaced",
    "ranks": "test_a_lost_rank_fails_the_requests_of_its_model_alone",
    "system_prompt": "test_a_models_own_system_prompt_goes_before_everybodys",
    "vision": "test_with_vision_off_the_text_half_alone_is_loaded",
    "max_context": "test_a_models_tables_hold_for_it_alone",
    "kv_bits": "test_a_models_tables_hold_for_it_alone",
    "pinned": "test_pins_that_exceed_the_memory_together_are_told_with_their_sum",
    "preload": "test_models_are_preloaded_into_free_memory_and_the_others_are_a_warning",
    "ttl": "test_a_model_with_a_time_to_live_is_unloaded_when_it_is_idle_for_so_long",
}
"""The same for settings of single models; those with the name of a server's setting share its road."""


def test_every_setting_has_a_test_from_the_setting_to_its_effect() -> None:
    function = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
    functions = {name for path in TESTS.rglob("test_*.py") for name in function.findall(path.read_text())}
    assert SHOWN_BY.keys() == FIELDS.keys()
    assert set(SHOWN_BY.values()) - functions == set()
    own = attrs.fields_dict(ModelSettings).keys() - SHOWN_BY.keys()
    assert own <= SHOWN_FOR_A_MODEL_BY.keys() <= attrs.fields_dict(ModelSettings).keys()
    assert set(SHOWN_FOR_A_MODEL_BY.values()) - functions == set()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"port": "x"}, "port = 'x': must be a whole number, 0 to 65535"),
        ({"port": 70_000}, "port = 70000: must be a whole number, 0 to 65535"),
        ({"port": None}, "port = None: must be a whole number, 0 to 65535"),
        ({"max_batch": True}, "max_batch = True: must be a whole number, at least 1"),
        ({"memory_bytes": "8GB"}, "memory_bytes = '8GB': must be a whole number, at least 1,048,576"),
        ({"models": "abc"}, "models = 'abc': must be a list of strings"),
        ({"device": "tpu"}, "device = 'tpu': must be one of auto, cpu, gpu"),
        ({"kv_bits": 5}, "kv_bits = 5: must be a whole number, 4 or 8"),
        ({"temperature": "hot"}, "temperature = 'hot': must be a number, 0 to 2"),
        ({"idle_connection": math.nan}, "idle_connection = nan: must be a number, above 0"),
        ({"api_key": 5}, "api_key: must be a string"),
        (
            {"model_settings": (("a", 5),)},
            "model_settings = (('a', 5),): must be pairs of a name",
        ),
    ],
)
def test_a_program_is_told_the_setting_that_is_wrong(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Settings(**given)


def test_no_secret_is_shown_with_the_settings() -> None:
    assert "hush" not in repr(Settings(api_key="hush"))


TABLES = (
    ("org/*", ModelSettings(kv_bits=4, ttl=60.0, pinned=True)),
    ("*", ModelSettings(kv_bits=8, ttl=30.0, temperature=0.5)),
    ("org/model", ModelSettings(ttl=10.0, pinned=False)),
)


def test_a_full_name_beats_a_pattern_and_the_first_pattern_the_second() -> None:
    settings = Settings(model_settings=TABLES)
    assert settings.of_model("org/model") == ModelSettings(kv_bits=4, ttl=10.0, pinned=False, temperature=0.5)
    assert settings.of_model("org/other") == ModelSettings(kv_bits=4, ttl=60.0, pinned=True, temperature=0.5)
    assert settings.of_model("local") == ModelSettings(kv_bits=8, ttl=30.0, temperature=0.5)
    assert Settings().of_model("local") == ModelSettings()


def test_a_models_settings_take_the_place_of_the_servers() -> None:
    settings = Settings(temperature=1.0, max_context=4096, model_settings=TABLES)
    applied = settings.applied_to("org/model")
    assert (applied.temperature, applied.kv_bits, applied.max_context) == (0.5, 4, 4096)
    assert Settings(temperature=1.0).applied_to("org/model") == Settings(temperature=1.0)


def test_every_reloadable_setting_exists() -> None:
    assert set(RELOADABLE) <= attrs.fields_dict(Settings).keys()


def test_only_what_can_be_taken_in_comes_into_force() -> None:
    before = Settings(port=8000, log_level="info", origins=(("port", "file"),))
    origins: tuple[tuple[str, Source], ...] = (("log_level", "file"),)
    read = Settings(port=9000, log_level="debug", allowed_hosts=("a.example",), origins=origins)
    change = compare(before, read)
    assert change.applied == ("allowed_hosts", "log_level")
    assert change.needs_restart == ("port",)
    assert (change.settings.port, change.settings.log_level) == (8000, "debug")
    assert dict(change.settings.origins) == {"port": "file", "log_level": "file"}


def test_equal_settings_are_no_change() -> None:
    change = compare(Settings(), Settings(origins=(("port", "flag"),)))
    assert (change.applied, change.needs_restart) == ((), ())


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (ModelSettings(kv_bits=8), True),
        (ModelSettings(tool_parser="hermes"), True),
        (ModelSettings(alias=("other",)), False),
        (ModelSettings(ttl=5.0, pinned=True, preload=True), False),
        (ModelSettings(), False),
    ],
)
def test_a_model_is_opened_anew_for_what_it_was_opened_with(changed: ModelSettings, expected: bool) -> None:
    before, now = Settings(), Settings(model_settings=(("one", changed),))
    assert opens_otherwise(before, now, "one") is expected
    assert opens_otherwise(before, now, "another") is False
