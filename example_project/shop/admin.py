from django.contrib import admin

from .models import Report, Tenant


@admin.register(Tenant)
class TenantAdmin(admin.ModelAdmin):
    list_display = ("name", "slug", "plan")
    list_filter = ("plan",)
    exclude = ("key_digest",)


@admin.register(Report)
class ReportAdmin(admin.ModelAdmin):
    list_display = ("tenant", "state")
