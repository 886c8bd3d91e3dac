"""What a container runtime is told to run, from what the API says of a container."""

from collections.abc import Mapping
from pathlib import Path

from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.kubernetes.kubelet import environment, images
from megatron_eks.localcloud.kubernetes.kubelet.container import Container
from megatron_eks.localcloud.kubernetes.kubelet.context import Context
from megatron_eks.localcloud.kubernetes.kubelet.names import DOMAIN
from megatron_eks.localcloud.kubernetes.kubelet.network import API_SERVICE, DNS
from megatron_eks.localcloud.kubernetes.kubelet.rootfs import Mount
from megatron_eks.localcloud.kubernetes.kubelet.volumes import Volumes, contents

_TERMINATION_LOG = "/dev/termination-log"

# Of the services only this one has an address that leads anywhere.
_SERVICE_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": str(API_SERVICE),
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBERNETES_SERVICE_PORT_HTTPS": "443",
}


class Creation:
    """One pod's containers, each as it is to be run."""

    def __init__(self, context: Context, folder: Path, volumes: Volumes, sandbox: int) -> None:
        self._context, self._folder = context, folder
        self._volumes = volumes
        self.sandbox = sandbox
        """The process whose namespaces the containers share."""

    def write_network_files(self, pod: Object) -> None:
        """Write what a kubelet puts in the place of the image's /etc/hosts and /etc/resolv.conf."""
        metadata, spec = pod["metadata"], pod["spec"]
        address, name = pod["status"]["podIP"], host_name(pod)
        if subdomain := spec.get("subdomain"):
            name = f"{name}.{subdomain}.{metadata['namespace']}.svc.{DOMAIN}\t{name}"
        lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost", f"{address}\t{name}"]
        (self._folder / "hosts").write_text("\n".join([*lines, ""]))
        service = f"svc.{DOMAIN}"
        search = f"{metadata['namespace']}.{service} {service} {DOMAIN}"
        (self._folder / "resolv.conf").write_text(
            f"nameserver {DNS}\nsearch {search}\noptions ndots:5\n"
        )

    def container(self, spec: Object, pod: Object) -> Container:
        """Return one container; raise UnknownImageError or ConfigError."""
        image = images.find(spec["image"], self._context.images)
        data = self._data(pod["metadata"]["namespace"])
        own = environment.variables(spec, pod, data)
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOSTNAME": host_name(pod),
            "HOME": "/",
            **_SERVICE_VARIABLES,
            **self._context.settings.environment,
            **image.environment,
            **own,
        }
        words = environment.command(spec, tuple(image.entrypoint), variables)
        if not words:
            raise environment.ConfigError(f"no command specified for {spec['image']}")
        security = {**pod["spec"].get("securityContext", {}), **spec.get("securityContext", {})}
        user = security.get("runAsUser", image.user)
        root = self._folder / "containers" / spec["name"]
        root.mkdir(parents=True, exist_ok=True)
        mounts = [*image.mounts, *self._mounts(spec, variables)]
        return Container(
            sandbox=self.sandbox,
            root=str(root),
            command=words,
            environment=variables,
            directory=spec.get("workingDir") or image.directory,
            user=user,
            group=security.get("runAsGroup", user),
            read_only=security.get("readOnlyRootFilesystem", False),
            mounts=[vars(each) for each in mounts],
        )

    def termination_log(self, name: str) -> Path:
        """Return the file in which a container leaves its last message."""
        return self._folder / f"termination-log-{name}"

    def _mounts(self, spec: Object, variables: Mapping[str, str]) -> list[Mount]:
        log = self.termination_log(spec["name"])
        log.write_bytes(b"")
        found = [
            Mount(str(self._folder / "hosts"), "/etc/hosts"),
            Mount(str(self._folder / "resolv.conf"), "/etc/resolv.conf"),
            Mount(str(log), spec.get("terminationMessagePath", _TERMINATION_LOG)),
        ]
        for each in spec.get("volumeMounts", ()):
            source = self._volumes.places[each["name"]]
            below = environment.expand(each.get("subPathExpr", each.get("subPath", "")), variables)
            if below:
                volume, source = source, source / below
                if not source.resolve().is_relative_to(volume.resolve()):
                    # A pod made the link, whoever mounts it.
                    message = f"subPath {below} of volume {each['name']} leads out of the volume"
                    raise environment.ConfigError(message)
                source.mkdir(parents=True, exist_ok=True)
            found.append(Mount(str(source), each["mountPath"], each.get("readOnly", False)))
        return found

    def _data(self, namespace: str) -> environment.Data:
        def read(kind: str, name: str) -> Mapping[str, str] | None:
            found = self._context.client.find("v1", kind, name, namespace)
            if found is None:
                return None
            return {
                key: each.decode(errors="surrogateescape") for key, each in contents(found).items()
            }

        return read


def host_name(pod: Object) -> str:
    """Return the name that a pod's processes see as their machine's."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]
