"""Addresses of the pages."""

from django.urls import URLPattern, path

from apps.dashboard.views import people, places, tasks

urlpatterns: list[URLPattern] = [
    path("", places.overview_page, name="overview"),
    path("sign-in/", people.sign_in, name="sign_in"),
    path("sign-out/", people.sign_out, name="sign_out"),
    path("set-up/", people.set_up, name="set_up"),
    path("credentials/", people.credential_list, name="credential_list"),
    path("credentials/<int:pk>/revoke/", people.credential_remove, name="credential_revoke"),
    path("live/<slug:name>/", places.card, name="card"),
    path("policies/", places.policy_list, name="policy_list"),
    path("policies/<int:pk>/", places.policy_detail, name="policy_detail"),
    path("queues/", places.queue_list, name="queue_list"),
    path("queues/<int:pk>/", places.queue_detail, name="queue_detail"),
    path("resources/", places.resource_board, name="resources"),
    path("nodes/", places.node_list, name="node_list"),
    path("tasks/", tasks.task_list, name="task_list"),
    path("tasks/new/", tasks.task_form, name="task_enqueue"),
    path("tasks/<uuid:pk>/", tasks.task_detail, name="task_detail"),
    path("tasks/<uuid:pk>/expected-start/", tasks.task_expected_start, name="task_expected_start"),
    path("tasks/<uuid:pk>/enqueue/", tasks.task_put_in_queue, name="task_put_in_queue"),
    path("tasks/<uuid:pk>/abort/", tasks.task_stop, name="task_abort"),
    path("tasks/<uuid:pk>/dequeue/", tasks.task_take_out, name="task_dequeue"),
    path("tasks/<uuid:pk>/again/", tasks.task_again, name="task_again"),
    path(
        "tasks/<uuid:pk>/log/<int:generation>/", tasks.task_log_download, name="task_log_download"
    ),
]
