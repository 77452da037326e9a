"""Ray and Kubernetes: places that never come, probes that kill, pods that are evicted."""

from __future__ import annotations

from ..model import Cause, Family, Sign

_K8S = "https://kubernetes.io/docs/"

SIGNS = (
    Sign(
        "ray_waiting",
        (
            "cannot be scheduled right now",
            "current node has no gpu available",
            "no available node types can fulfill",
            "ray does not allocate any gpus",
            "the number of required gpus exceeds the total number",
            "total number of required gpus exceeds",
            "waiting for creating a placement group",
        ),
        r"Waiting for creating a placement group|No available node types can fulfill"
        r"|cannot be scheduled right now|The number of required GPUs exceeds the total number"
        r"|current node has no GPU available"
        r"|Ray does not allocate any GPUs"
        r"|Total number of required GPUs exceeds",
        any_level=True,
    ),
    Sign(
        "required_gpus",
        (" exceeds the total number of available",),
        r"number of required \w{2,8} exceeds the total number of available",
    ),
    Sign(
        "ray_worker_died",
        (
            "a worker died or was killed",
            "actordiederror",
            "rayactorerror",
            "the actor died unexpectedly",
        ),
        r"A worker died or was killed|ActorDiedError|RayActorError|The actor died unexpectedly",
        role="symptom",
        title="Ray reports that a worker died",
        collect="the dead worker's own log (ray logs worker-*.err on its node)",
    ),
    Sign(
        "ray_versions",
        ("version mismatch: the cluster was started with",),
        r"Version mismatch: The cluster was started with",
    ),
    Sign(
        "ray_node_gone",
        (
            "failed to connect to gcs",
            "health check failed due to missing too many",
            "marked dead because",
            "missed too many heartbeats",
        ),
        r"missed too many heartbeats|marked dead because|[Ff]ailed to connect to GCS"
        r"|health check failed due to missing too many",
    ),
    Sign(
        "ray_ready",
        ("connected to ray cluster",),
        r"Connected to Ray cluster",
        role="context",
    ),
    Sign(
        "unschedulable",
        (
            " nodes are available",
            "failedscheduling",
            "insufficient nvidia.com/gpu",
        ),
        r"Insufficient nvidia\.com/gpu|0/\d{1,6} nodes are available|FailedScheduling",
    ),
    Sign(
        "evicted",
        (
            "diskpressure",
            "emptydir volume",
            "ephemeral",
            "node was low on resource:",
            "reason:",
        ),
        r"node was low on resource: ?(?P<resource>[\w-]{1,40})"
        r"|exceed\w{0,3}.{0,60}ephemeral[- ]?(?:local )?storage"
        r"|Usage of EmptyDir volume .{1,80} exceeds"
        r"|\bDiskPressure\b|Reason:\s{0,20}Evicted",
    ),
    Sign(
        "probe_failed",
        (
            " probe failed",
            "failed liveness",
            "failed startup",
        ),
        r"(?:Liveness|Startup) probe failed|failed (?:liveness|startup) probe",
    ),
    Sign(
        "image_pull",
        (
            "errimagepull",
            "failed to pull image",
            "imagepullbackoff",
        ),
        r"ImagePullBackOff|ErrImagePull|Failed to pull image",
    ),
    Sign(
        "image_architecture",
        ("exec format error",),
        r"exec format error",
    ),
    Sign(
        "pod_normal",
        ("normal",),
        r"(?:^|[> ])Normal\s{1,8}\w{1,20}\s",
        role="context",
    ),
    Sign(
        "crash_loop",
        (
            "back-off restarting failed",
            "crashloopbackoff",
        ),
        r"CrashLoopBackOff|Back-off restarting failed",
        role="symptom",
        title="Kubernetes keeps restarting a container that fails",
        collect="kubectl logs --previous of the container that restarts",
    ),
)

CAUSES = (
    Cause(
        id="ray_no_place",
        kind="ray_resources",
        sentence="Ray has no place for the workers: the placement group asks for GPUs that the "
        "cluster does not have or does not see.",
        remedy="Compare ray status with tensor × pipeline parallel size; start Ray on every node "
        "with its GPUs; free those held by old jobs; bring the missing node back.",
        will_not_help=(
            ("waiting longer", "resources that no node offers never appear"),
            ("a higher gpu_memory_utilization", "whole GPUs are missing, not memory"),
        ),
        collect=("ray status", "nvidia-smi -L on each node", "CUDA_VISIBLE_DEVICES of ray start"),
        confidence=0.85,
        reference="https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html",
        depth=71,
        any=("ray_waiting", "required_gpus"),
    ),
    Cause(
        id="ray_versions_differ",
        kind="version_mismatch",
        sentence="Ray or Python has another version on this node than on the head.",
        remedy="Use one image for all nodes; restart Ray everywhere.",
        will_not_help=(("a retry", "the versions are compared at every connection"),),
        collect=("ray --version and python --version on each node",),
        confidence=0.95,
        reference="https://docs.ray.io/en/latest/cluster/faq.html",
        depth=80,
        any=("ray_versions",),
    ),
    Cause(
        id="ray_node_lost",
        kind="node_lost",
        sentence="A Ray node was lost: it stopped sending heartbeats, or its "
        "head cannot be reached.",
        remedy="Look at that node: memory, kernel log, network; then restart Ray on it.",
        will_not_help=(("longer NCCL time-outs", "the node is gone from the cluster"),),
        collect=("journalctl -k of the lost node", "raylet.out and gcs_server.out"),
        confidence=0.7,
        reference="https://docs.ray.io/en/latest/ray-core/fault_tolerance/nodes.html",
        depth=45,
        any=("ray_node_gone",),
    ),
    Cause(
        id="pod_unschedulable",
        kind="ray_resources",
        sentence="Kubernetes finds no node for the pod: not enough free GPUs, or selectors and "
        "taints exclude the nodes.",
        remedy="Read the scheduler's counts; free GPUs, fix selectors or tolerations; check that "
        "the "
        "device plugin runs.",
        will_not_help=(("restarting the pod", "the request is the same and so is the answer"),),
        collect=("kubectl describe pod", "kubectl describe node | grep nvidia.com/gpu"),
        confidence=0.85,
        reference=_K8S + "concepts/scheduling-eviction/",
        depth=70,
        any=("unschedulable",),
    ),
    Cause(
        id="pod_evicted",
        kind="disk_full",
        sentence="The kubelet evicted the pod because its node ran low on a "
        "resource, often the disk "
        "that an uncapped cache filled.",
        remedy="Cap the cache; put it on a volume of its own; set requests and limits for "
        "ephemeral-storage.",
        will_not_help=(("restarting the pod", "the cache fills the node's disk again"),),
        collect=("kubectl describe pod and node", "du of the cache directory"),
        confidence=0.85,
        reference="LMCache/LMCache#4664",
        depth=86,
        any=("evicted",),
    ),
    Cause(
        id="probe_killed",
        kind="probe_restart",
        sentence="Kubernetes killed the container because its probe failed: a "
        "start slower than the "
        "probe allows, or an engine that no longer answers.",
        remedy="Give a startupProbe enough time for loading and compiling; if the engine had been "
        "serving, look for the hang before the first failed probe.",
        will_not_help=(
            ("removing the probe", "an engine that hangs would then stay in service"),
            ("more replicas", "each is killed in the same way"),
        ),
        collect=("kubectl logs --previous", "the time from start to «server started»"),
        confidence=0.6,
        reference=_K8S + "concepts/configuration/liveness-readiness-startup-probes/",
        depth=25,
        any=("probe_failed",),
    ),
    Cause(
        id="image_of_other_processor",
        kind="image",
        sentence="The container image was built for another kind of processor than this host's.",
        remedy="Pull or build the image for this host's architecture (--platform linux/arm64 or "
        "linux/amd64), best as a multi-platform image.",
        will_not_help=(("pulling it again", "the same tag brings the same architecture"),),
        collect=("docker image inspect (Architecture)", "uname -m on the host"),
        confidence=0.9,
        reference="https://docs.docker.com/build/building/multi-platform/",
        depth=68,
        any=("image_architecture",),
    ),
    Cause(
        id="image_not_pulled",
        kind="image",
        sentence="The container image cannot be pulled.",
        remedy="Check the name, the tag, the pull secret and the registry's reachability.",
        will_not_help=(("deleting the pod", "the next one asks for the same image"),),
        collect=("kubectl describe pod (Events)",),
        confidence=0.9,
        reference=_K8S + "concepts/containers/images/",
        depth=70,
        any=("image_pull",),
    ),
)

FAMILY = Family("orchestration", "Ray and Kubernetes", SIGNS, CAUSES)
