from django.contrib import admin
from django.urls import include, path
from shop import views
from shop.api import api

urlpatterns = [
    path("", include("live.urls")),
    path("status/", views.status, name="status"),
    path("limits/", views.limits, name="limits"),
    path("metrics", views.metrics, name="metrics"),
    path("admin/", admin.site.urls),
    path("api/login/", views.login, name="login"),
    path("api/orders/", views.orders, name="orders"),
    path("api/exports/", views.exports, name="exports"),
    path("api/rates/", views.rates, name="rates"),
    path("api/invoices/", views.Invoices.as_view(), name="invoices"),
    path("api/customers/", views.Customers.as_view(), name="customers"),
    path("api/reports/", views.reports, name="reports"),
    path("api/reports/<int:number>/", views.report, name="report"),
    path("api/v2/", api.urls),
]
