"""Every bound that a user of RPM can reach: where it is defined, and the test that reaches it.

docs/bounds.md shows this table; `tests/rpm/test_bounds.py` compares both with the code.
"""

from rpm.bound import Bound
from rpm.stream_bounds import STREAM_BOUNDS

__all__ = ["BOUNDS", "Bound"]

_CHANNEL = "execution/transport/test_channel.py"
_UNASKED = "test_what_a_node_sends_unasked_and_in_one_packet_is_bounded"
_ENQUEUE = "tasks/services/test_submission.py"
_DRAFTS = f"{_ENQUEUE}::test_drafts_of_one_person_are_bounded"
_WAITING = "tasks/services/test_arrays.py::test_a_large_array_is_enqueued_with_one_insert"
_WAITS = f"{_ENQUEUE}::test_waiting_tasks_are_bounded"
_BYTES = "tasks/services/test_storage.py::test_the_bytes_of_the_tasks_of_one_person_are_bounded"
_DEFENCES = "rpm/test_defences.py"
_BODIES = "core/test_bodies.py"
_SERVER = "rpm/test_asgi_server.py"
_ACTIONS = "apps.tasks.services.bulk_actions"
_ACTED = "tasks/services/test_bulk_actions.py::test_one_request_acts_on_a_thousand_tasks_at_most"
_DESCRIBED = "tasks/test_bounds.py::test_a_description_is_taken_at_each_bound_and_not_above"
_BULK = "apps.tasks.services.enqueue.bulk"
_NO_MORE = "tasks/services/test_bulk.py::test_a_bulk_names_no_more_than_the_most"
_OTHERS = "apps.tasks.services.dependencies"
_AFTER = "tasks/services/test_dependencies.py"
_DEPENDENTS = f"{_AFTER}::test_tasks_that_wait_for_one_are_bounded"
_OF_OTHERS = f"{_AFTER}::test_others_leave_the_owner_tasks_that_may_wait_for_theirs"
_IN_A_ROW = f"{_AFTER}::test_tasks_that_wait_in_a_row_are_bounded"
_SETTLED = f"{_AFTER}::test_a_pass_rejects_a_bounded_number_of_tasks"
_ARRAYS = "apps.tasks.services.arrays"
_STEPS = "tasks/services/test_array_steps.py"
_STORED = f"{_STEPS}::test_a_step_stores_a_bounded_number_of_elements"
_OF_OWNER = f"{_STEPS}::test_the_waiting_elements_of_a_user_are_bounded"
_IN_TIME = f"{_STEPS}::test_a_step_without_time_left_leaves_the_rest_to_the_next"
_QUEUE = "apps.tasks.services.enqueue.queue_bounds"
_MANY_ARRAYS = f"{_STEPS}::test_the_arrays_of_a_user_that_have_not_ended_are_bounded"
_NAMES = "accounts/test_profile.py::test_users_change_their_name_a_bounded_number_of_times"
_VAULTS = "apps.vaults.services.vaults"
_TENANT = "configuration/test_tenant_bounds.py::test"
_VAULT = "vaults/test_services.py::test_there_is_a_bound_to_the_number_of"
_ACTIVE = "vaults/test_services.py::test_what_active_vaults_hold_is_bounded"
_PREFERENCES = "apps.accounts.services.preferences"
_PATTERNS = "accounts/test_preferences.py::test_a_list_of_patterns_is_taken_at_each_bound"
_PATHS = f"{_DEFENCES}::test_each_path_takes_what_it_needs_and_less_from_who_is_not_signed_in"

_NOTICES = "apps.notices.services"
_KEPT = "notices/test_notice_maker.py::test_notices_of_one_user_are_bounded_and_the_newest_stay"
_YAML_VALUES = "apps.policies.document.yaml_text:VALUES"
_FILE_VALUES = (
    "configuration/api/test_file_versions.py::"
    "test_a_text_of_more_values_is_refused_where_they_begin"
)
_RULES = "notices/test_rules.py::test_the_rules_of_one_user_are_bounded"

BOUNDS = (
    Bound("person", "rules of notices", f"{_NOTICES}.rules:MOST_RULES", _RULES),
    Bound("person", "notices that are kept", f"{_NOTICES}.notice_maker:MOST_NOTICES", _KEPT),
    Bound("person", "drafts", "RPM_DRAFTS_PER_PERSON", _DRAFTS),
    Bound("person", "tasks that wait in one queue", "RPM_WAITING_PER_PERSON", _WAITS),
    Bound("person", "bytes that tasks take", "RPM_TASK_BYTES_PER_PERSON", _BYTES),
    Bound(
        "request",
        "levels of a tree of policies",
        "apps.configuration.services.policies:MOST_LEVELS",
        "configuration/api/test_policies.py::test_a_tree_of_policies_is_as_deep_as_the_bound",
    ),
    Bound(
        "person",
        "credentials that are valid",
        "apps.accounts.services.credentials:MOST_CREDENTIALS",
        "accounts/test_credentials.py::test_the_credentials_of_an_account_are_bounded",
    ),
    Bound("person", "vaults of their own", f"{_VAULTS}:MOST_PERSONAL", f"{_VAULT}_vaults"),
    Bound(
        "tenant",
        "policies that its administrators make",
        "apps.configuration.services.tenant_checks:MOST_POLICIES",
        f"{_TENANT}_policies_of_a_tenant_are_bounded",
    ),
    Bound(
        "tenant",
        "groups that its administrators make",
        "apps.accounts.services.tenancy:MOST_GROUPS",
        f"{_TENANT}_groups_of_a_tenant_are_bounded",
    ),
    Bound(
        "tenant",
        "users that its administrators invite",
        "apps.accounts.services.tenancy:MOST_PEOPLE",
        f"{_TENANT}_people_whom_a_tenant_invites_are_bounded",
    ),
    Bound(
        "tenant",
        "vaults of its groups",
        f"{_VAULTS}:MOST_OF_GROUPS",
        "access/test_vault_isolation.py::test_each_tenant_has_a_bound_of_its_own",
    ),
    Bound(
        "person",
        "revisions that are kept",
        "KEEP_REVISIONS",
        "configuration/test_revision_retention.py::"
        "test_who_makes_many_revisions_removes_none_of_the_others",
    ),
    Bound(
        "task",
        "people, service accounts and groups that its rules name",
        "apps.configuration.services.rules:MOST_ON_TASK",
        "configuration/test_task_rules.py::test_a_task_is_shared_with_as_many_as_its_bound_says",
    ),
    Bound(
        "vault",
        "versions that are kept",
        "apps.vaults.services.maintenance:KEPT_VERSIONS",
        "vaults/test_services.py::test_old_versions_and_removed_vaults_go_when_no_task_needs_them",
    ),
    Bound(
        "person",
        "patterns of variables whose values are hidden",
        "apps.accounts.services.preferences:PATTERNS",
        "accounts/test_preferences.py::test_a_list_that_will_not_do_is_refused",
    ),
    Bound(
        "person",
        "REST requests of one credential in a minute",
        "RPM_REQUESTS_PER_CREDENTIAL",
        "accounts/test_throttling.py::test_a_credential_that_asks_too_often_waits",
    ),
    Bound("queue", "tasks that wait", "RPM_WAITING_PER_QUEUE", _WAITS),
    Bound(
        "queue",
        "different sizes and priorities of waiting tasks",
        "RPM_TASK_GROUPS_PER_QUEUE",
        f"{_ENQUEUE}::test_different_sizes_and_priorities_are_bounded",
    ),
    Bound("request", "bytes of a bulk of tasks", "RPM_LARGEST_BODY", _PATHS),
    Bound("request", "bytes of any other body", "RPM_USUAL_BODY", _PATHS),
    Bound("request", "bytes without session or credential", "RPM_UNKNOWN_BODY", _PATHS),
    Bound(
        "request",
        "seconds for the body",
        "RPM_BODY_S",
        f"{_BODIES}::test_a_body_that_comes_too_slowly_is_refused",
    ),
    Bound(
        "request",
        "seconds for the headers",
        "rpm.http_protocol:HEADERS_S",
        f"{_SERVER}::test_a_connection_without_a_whole_request_is_closed",
    ),
    Bound(
        "address",
        "bytes of bodies that a process keeps at a time",
        "apps.core.bodies:MOST_OF_ADDRESS",
        f"{_SERVER}::test_unfinished_bodies_of_one_address_are_bounded",
    ),
    Bound(
        "person",
        "bytes of bodies that a process keeps at a time",
        "apps.core.bodies:MOST_OF_PERSON",
        f"{_BODIES}::test_bodies_kept_for_one_person_are_bounded",
    ),
    Bound(
        "server",
        "connections of a process",
        "rpm.http_protocol:MOST_CONNECTIONS",
        f"{_SERVER}::test_at_the_bound_of_connections_the_oldest_without_a_request_is_closed",
    ),
    Bound(
        "request",
        "tasks of a bulk",
        "apps.tasks.services.enqueue.bulk:MANY",
        "tasks/api/test_tasks.py::test_a_bulk_request_takes_a_thousand_tasks_and_no_more",
    ),
    Bound("request", "queues of a bulk of tasks", f"{_BULK}:QUEUES", f"{_NO_MORE}_queues"),
    Bound("request", "tasks that a bulk waits for", f"{_BULK}:OTHERS", f"{_NO_MORE}_others"),
    Bound("request", "tasks that a task waits for", "apps.tasks.task_spec:AFTER", _DESCRIBED),
    Bound("task", "tasks that wait for it", f"{_OTHERS}:MOST_DEPENDENTS", _DEPENDENTS),
    Bound("task", "tasks of others that wait for it", f"{_OTHERS}:MOST_OF_OTHERS", _OF_OTHERS),
    Bound("task", "tasks that wait for it in a row", f"{_OTHERS}:MOST_STEPS", _IN_A_ROW),
    Bound("request", "tasks of a bulk action", f"{_ACTIONS}:MOST_TASKS", _ACTED),
    Bound("request", "characters of a task's name", "apps.tasks.task_spec:NAME_LENGTH", _DESCRIBED),
    Bound("request", "secrets of a task", "apps.tasks.task_spec:SECRETS", _DESCRIBED),
    Bound("request", "bytes of its secrets", "apps.tasks.task_spec:SECRETS_BYTES", _DESCRIBED),
    Bound("request", "bytes of its script", "apps.tasks.task_spec:SCRIPT_BYTES", _DESCRIBED),
    Bound("request", "tags of a task", "apps.tasks.task_spec:TAGS", _DESCRIBED),
    Bound("request", "characters of a tag", "apps.tasks.task_spec:TAG_LENGTH", _DESCRIBED),
    Bound("request", "volumes of a task", "apps.tasks.task_spec:VOLUMES", _DESCRIBED),
    Bound("request", "replicas of a task", "apps.tasks.task_spec:REPLICAS", _DESCRIBED),
    Bound("request", "elements of an array", "apps.tasks.task_spec:ARRAY", _DESCRIBED),
    Bound("person", "arrays that have not ended", f"{_QUEUE}:MOST_ARRAYS", _MANY_ARRAYS),
    Bound("person", "stored elements that wait", f"{_ARRAYS}:MOST_OF_OWNER", _OF_OWNER),
    Bound("array", "stored elements that wait", f"{_ARRAYS}:WAITING", _WAITING),
    Bound("pass", "elements that it stores", f"{_ARRAYS}:STORED_AT_ONCE", _STORED),
    Bound("pass", "seconds that storing elements takes", f"{_ARRAYS}:STEP_S", _IN_TIME),
    Bound("pass", "tasks whose dependencies it settles", f"{_OTHERS}:SETTLED_AT_ONCE", _SETTLED),
    Bound(
        "person", "former user names", "apps.accounts.services.profile:MOST_FORMER_NAMES", _NAMES
    ),
    Bound("request", "retries of a task", "apps.tasks.task_spec:RETRIES", _DESCRIBED),
    Bound("request", "bytes of a command", "apps.core.containers:COMMAND_BYTES", _DESCRIBED),
    Bound("request", "bytes of one argument", "apps.core.containers:ARGUMENT_BYTES", _DESCRIBED),
    Bound("request", "bytes of one variable", "apps.core.containers:VARIABLE_BYTES", _DESCRIBED),
    Bound(
        "request", "bytes of the environment", "apps.core.containers:ENVIRONMENT_BYTES", _DESCRIBED
    ),
    Bound(
        "request",
        "bytes of a vault",
        "apps.vaults.text.bounds:TEXT_BYTES",
        "vaults/test_hocon.py::test_texts_that_want_to_be_huge_are_refused_soon",
    ),
    Bound(
        "log",
        "bytes kept of a member",
        "apps.tasks.services.members.logs:MOST_BYTES",
        "tasks/services/test_logs.py::test_a_piece_across_the_bound_is_stored_up_to_it",
    ),
    Bound(
        "log",
        "bytes of a secret that are searched for as one",
        "apps.tasks.log_masks:MOST_BYTES",
        "tasks/test_log_masks.py::"
        "test_what_is_looked_for_is_bounded_and_the_work_at_each_byte_with_it",
    ),
    Bound(
        "log",
        "members of one node whose logs an exchange asks for",
        "apps.execution.services.reports:MOST_LOGS",
        "execution/services/test_reported_logs.py::"
        "test_one_exchange_asks_for_as_many_logs_as_the_node_reads_ended_ones_first",
    ),
    Bound(
        "answer",
        "problems that an error names",
        "apps.core.errors:MOST_PROBLEMS",
        "core/test_api.py::test_of_very_many_unknown_fields_only_the_first_are_answered",
    ),
    Bound(
        "answer",
        "characters of a problem",
        "apps.core.api:DETAIL_CHARS",
        "core/test_api.py::"
        "test_an_error_is_answered_with_a_bounded_number_of_problems_of_bounded_length",
    ),
    Bound(
        "answer",
        "bytes that a node may answer",
        "apps.execution.protocol.answers:ANSWER_BYTES",
        "execution/protocol/test_answers.py::test_an_answer_beyond_the_bound_is_not_even_parsed",
    ),
    *(
        Bound("answer", what, f"apps.execution.{setting}", f"{_CHANNEL}::{test}")
        for what, setting, test in (
            (
                "requests under way on one connection to a node",
                "transport.channel:REQUESTS_IN_FLIGHT",
                "test_more_requests_than_the_bound_are_refused",
            ),
            (
                "requests that a helper carries out at once",
                "node.channel:IN_FLIGHT",
                "test_a_helper_begins_no_more_than_the_bound_at_once",
            ),
            (
                "bytes of a request to a helper",
                "node.channel:FRAME_BYTES",
                "test_a_request_longer_than_the_bound_is_not_sent",
            ),
            (
                "answers of a node that are overdue",
                "transport.channel:GIVEN_UP",
                "test_a_node_that_owes_more_answers_than_the_bound_is_given_up",
            ),
            ("bytes of a node that are not read yet", "transport.channel:UNREAD_BYTES", _UNASKED),
            ("bytes of one SSH packet of a node", "transport.channel:PACKET_BYTES", _UNASKED),
        )
    ),
    Bound(
        "answer",
        "bytes that an identity provider may answer",
        "apps.core.outgoing_requests:MOST_BYTES",
        "core/test_outgoing_requests.py::test_an_answer_without_an_end_is_given_up",
    ),
    Bound(
        "person",
        "sockets of browsers and programs in one process",
        "apps.dashboard.consumers:MOST_SOCKETS",
        "dashboard/test_live.py::test_the_sockets_of_one_person_are_bounded",
    ),
    Bound(
        "stream",
        "bytes of one message of a browser",
        "apps.dashboard.consumers:MOST_BYTES",
        "dashboard/test_live.py::test_what_is_not_our_protocol_closes_the_socket",
    ),
    Bound(
        "image",
        "volumes that it asks for",
        "apps.execution.node.image_rules:MOST_VOLUMES",
        "execution/node/test_image_rules.py::test_an_image_has_volumes_up_to_the_bound",
    ),
    Bound(
        "image",
        "bytes of /etc/passwd and of /etc/group",
        "apps.execution.node.image_root:ACCOUNT_BYTES",
        "execution/node/test_image_root.py::test_an_image_has_user_names_up_to_the_bound_and_behind_links",
    ),
    Bound(
        "log",
        "times that a log and a checkpoint file take too much space",
        "apps.execution.node.supervisor:MOST_EXCESSES",
        "execution/node/test_space_limits.py::test_a_task_that_takes_space_again_and_again_is_ended",
    ),
    Bound(
        "image",
        "seconds until a container of it starts",
        "apps.execution.node.supervisor:START_LIMIT_S",
        "execution/node/test_hanging_starts.py::test_a_start_that_hangs_ends_after_its_time",
    ),
    Bound("request", "variables of a task", "apps.core.containers:VARIABLES", _DESCRIBED),
    Bound("request", "arguments of a command", "apps.core.containers:ARGUMENTS", _DESCRIBED),
    Bound(
        "request",
        "characters of an Idempotency-Key",
        "apps.tasks.services.enqueue.idempotency:KEY_LENGTH",
        "tasks/api/test_query_parameters.py::test_an_idempotency_key_is_as_long_as_the_bound",
    ),
    Bound(
        "person",
        "days that an Idempotency-Key is kept",
        "apps.tasks.services.retention:KEYS_DAYS",
        "tasks/services/test_retention.py::test_keys_of_requests_go_after_a_week",
    ),
    Bound("person", "characters of such a pattern", f"{_PREFERENCES}:PATTERN_LENGTH", _PATTERNS),
    Bound("person", "stars in such a pattern", f"{_PREFERENCES}:PATTERN_STARS", _PATTERNS),
    Bound(
        "person",
        "bytes of what active vaults of their own hold",
        f"{_VAULTS}:ACTIVE_BYTES",
        _ACTIVE,
    ),
    Bound(
        "tenant",
        "bytes of what active vaults of groups hold",
        f"{_VAULTS}:ACTIVE_BYTES_OF_GROUPS",
        _ACTIVE,
    ),
    Bound(
        "request",
        "enforced paths of a vault",
        f"{_VAULTS}:MOST_ENFORCED",
        f"{_VAULT}_enforced_paths",
    ),
    Bound(
        "request",
        "values of a vault",
        "apps.vaults.text.bounds:VALUES",
        "vaults/test_hocon.py::test_a_text_holds_values_up_to_the_bound",
    ),
    Bound(
        "request",
        "substitutions of a vault in HOCON",
        "apps.vaults.text.hocon_resolver:SUBSTITUTIONS",
        "vaults/test_hocon.py::test_a_text_takes_substitutions_up_to_the_bound",
    ),
    Bound(
        "log",
        "bytes of a member that one exchange brings",
        "apps.execution.protocol.bounds:LOG_BYTES",
        "execution/node/test_members.py::test_long_logs_come_in_bounded_parts_and_complete",
    ),
    Bound(
        "log",
        "bytes that one answer brings",
        "apps.tasks.selectors.attempts:MOST_LOG_BYTES",
        "tasks/api/test_query_parameters.py::test_a_log_is_answered_up_to_the_bound",
    ),
    Bound(
        "log",
        "seconds that storing logs takes of one exchange with a node",
        "apps.execution.services.reports:LOGS_S",
        "execution/services/test_reported_logs.py::"
        "test_what_storing_logs_takes_of_one_exchange_is_bounded",
    ),
    Bound(
        "log",
        "parts of secrets that are tried behind stars",
        "apps.tasks.log_masks:MOST_NEEDLES",
        "tasks/test_log_masks.py::test_behind_stars_no_more_secrets_are_tried_than_the_bound",
    ),
    Bound("request", "values of a file of the configuration", _YAML_VALUES, _FILE_VALUES),
    *STREAM_BOUNDS,
)
