"""Addresses of the pages."""

from django.urls import URLPattern, path
from django.views.generic import RedirectView

from apps.dashboard.views import (
    audit,
    editor,
    nodes,
    people,
    places,
    policies,
    policy_changes,
    queues,
    resources,
    revisions,
    tasks,
)

urlpatterns: list[URLPattern] = [
    path("", places.overview_page, name="overview"),
    path("sign-in/", people.sign_in, name="sign_in"),
    path("sign-out/", people.sign_out, name="sign_out"),
    path("set-up/", people.set_up, name="set_up"),
    path("credentials/", people.credential_list, name="credential_list"),
    path("credentials/<int:pk>/revoke/", people.credential_remove, name="credential_revoke"),
    path("live/<slug:name>/", places.card, name="card"),
    path("policies/", policies.policy_list, name="policy_list"),
    path("policies/new/", policy_changes.policy_new, name="policy_new"),
    path("policies/<int:pk>/", policies.policy_detail, name="policy_detail"),
    path("policies/<int:pk>/can-start/", policies.policy_can_start, name="policy_can_start"),
    path("policies/<int:pk>/use/", policies.policy_use, name="policy_use"),
    path("policies/<int:pk>/edit/", policy_changes.policy_edit, name="policy_edit"),
    path("policies/<int:pk>/connect/", policy_changes.policy_connect, name="policy_connect"),
    path(
        "policies/<int:pk>/queue-name/", policy_changes.policy_queue_name, name="policy_queue_name"
    ),
    path(
        "policies/<int:pk>/queues/<int:queue_pk>/remove/",
        policy_changes.policy_disconnect,
        name="policy_disconnect",
    ),
    path("policies/<int:pk>/pause/", policy_changes.policy_pause_page, name="policy_pause"),
    path("policies/<int:pk>/resume/", policy_changes.policy_resume_now, name="policy_resume"),
    path("policies/<int:pk>/delete/", policy_changes.policy_delete, name="policy_delete"),
    path("queues/", queues.queue_list, name="queue_list"),
    path("queues/<int:pk>/", queues.queue_detail, name="queue_detail"),
    path("queues/<int:pk>/order/", queues.queue_order, name="queue_order"),
    path("queues/<int:pk>/pause/", queues.queue_pause_page, name="queue_pause"),
    path("queues/<int:pk>/resume/", queues.queue_resume_now, name="queue_resume"),
    path("queues/<int:pk>/settings/", queues.queue_settings, name="queue_settings"),
    path("resources/", RedirectView.as_view(pattern_name="resources", permanent=True)),
    path("settings/resources/", resources.resource_board, name="resources"),
    path("settings/resources/edit/", editor.resource_editor, name="resource_editor"),
    path(
        "settings/resources/edit/state/",
        editor.resource_editor_state,
        name="resource_editor_state",
    ),
    path("settings/resources/switch/", resources.resource_switch, name="resource_switch"),
    path("settings/resources/pools/<int:pk>/", resources.pool_info, name="pool_info"),
    path("settings/resources/pools/<int:pk>/pause/", resources.pool_pause_page, name="pool_pause"),
    path(
        "settings/resources/pools/<int:pk>/resume/", resources.pool_resume_now, name="pool_resume"
    ),
    path("settings/resources/yaml/", revisions.resource_yaml, name="resource_yaml"),
    path(
        "settings/resources/yaml/<slug:side>/",
        revisions.resource_yaml_download,
        name="resource_yaml_download",
    ),
    path("settings/resources/history/", revisions.revision_list, name="revision_list"),
    path(
        "settings/resources/history/<int:number>/",
        revisions.revision_detail,
        name="revision_detail",
    ),
    path(
        "settings/resources/history/<int:number>/yaml/",
        revisions.revision_yaml,
        name="revision_yaml",
    ),
    path(
        "settings/resources/history/<int:number>/restore/",
        revisions.revision_restore_page,
        name="revision_restore",
    ),
    path("settings/audit/", audit.audit_list, name="audit_list"),
    path("settings/audit/export/<slug:wanted>/", audit.audit_export, name="audit_export"),
    path("nodes/", nodes.node_list, name="node_list"),
    path("nodes/<int:pk>/", nodes.node_detail, name="node_detail"),
    path("nodes/<int:pk>/pause/", nodes.node_pause_page, name="node_pause"),
    path("nodes/<int:pk>/resume/", nodes.node_resume_now, name="node_resume"),
    path("nodes/<int:pk>/drain/", nodes.node_drain_now, name="node_drain"),
    path("tasks/", tasks.task_list, name="task_list"),
    path("tasks/new/", tasks.task_form, name="task_enqueue"),
    path("tasks/<uuid:pk>/", tasks.task_detail, name="task_detail"),
    path("tasks/<uuid:pk>/expected-start/", tasks.task_expected_start, name="task_expected_start"),
    path("tasks/<uuid:pk>/enqueue/", tasks.task_put_in_queue, name="task_put_in_queue"),
    path("tasks/<uuid:pk>/abort/", tasks.task_stop, name="task_abort"),
    path("tasks/<uuid:pk>/dequeue/", tasks.task_take_out, name="task_dequeue"),
    path("tasks/<uuid:pk>/resume/", tasks.task_let_wait, name="task_let_wait"),
    path("tasks/<uuid:pk>/again/", tasks.task_again, name="task_again"),
    path("tasks/<uuid:pk>/queue/", queues.task_queue_page, name="task_change_queue"),
    path(
        "tasks/<uuid:pk>/log/<int:generation>/", tasks.task_log_download, name="task_log_download"
    ),
]
