"""Addresses of configuration, policies and queues."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from apps.configuration.api.documents import (
    ConfigurationView,
    DraftChangesView,
    DraftView,
    PreviewView,
    ProvisionView,
    ResetView,
    RevisionViewSet,
    ValidateView,
)
from apps.configuration.api.files import ApplyView, DiffView, ExportView
from apps.configuration.api.groups import GroupViewSet
from apps.configuration.api.policies import (
    PolicyViewSet,
    PoolViewSet,
    ProfileViewSet,
    QueueViewSet,
)
from apps.configuration.api.rules import AccessRuleViewSet, ExplainView
from apps.configuration.api.tenants import TenantViewSet

router = SimpleRouter()
router.register("configuration/revisions", RevisionViewSet, "revision")
router.register("pools", PoolViewSet, "pool")
router.register("profiles", ProfileViewSet, "profile")
router.register("policies", PolicyViewSet, "policy")
router.register("queues", QueueViewSet, "queue")
router.register("groups", GroupViewSet, "group")
router.register("tenants", TenantViewSet, "tenant")
router.register("access-rules", AccessRuleViewSet, "access-rule")

urlpatterns = [
    path("configuration/", ConfigurationView.as_view(), name="configuration"),
    path("configuration/export/", ExportView.as_view(), name="configuration-export"),
    path("configuration/diff/", DiffView.as_view(), name="configuration-diff"),
    path("configuration/apply/", ApplyView.as_view(), name="configuration-apply"),
    path("configuration/draft/", DraftView.as_view(), name="draft"),
    path("configuration/draft/changes/", DraftChangesView.as_view(), name="draft-changes"),
    path("configuration/draft/validate/", ValidateView.as_view(), name="draft-validate"),
    path("configuration/draft/preview/", PreviewView.as_view(), name="draft-preview"),
    path("configuration/draft/provision/", ProvisionView.as_view(), name="draft-provision"),
    path("configuration/draft/reset/", ResetView.as_view(), name="draft-reset"),
    path("access/explain/", ExplainView.as_view(), name="access-explain"),
    path("", include(router.urls)),
]
