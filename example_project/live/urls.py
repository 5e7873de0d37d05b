from django.urls import path

from . import views

app_name = "live"
urlpatterns = [
    path("", views.page, name="page"),
    path("live/hit/", views.hit, name="hit"),
    path("live/reset/", views.reset, name="reset"),
    path("live/plug/", views.plug, name="plug"),
]
