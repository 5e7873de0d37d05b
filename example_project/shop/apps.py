from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self) -> None:
        from django_slidingwindow.contrib import prometheus

        prometheus.install()
