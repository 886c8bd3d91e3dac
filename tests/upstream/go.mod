// Upstream code that tests compare with. It is downloaded, checked against go.sum, and never built.
module megatron-eks.invalid/upstream

go 1.21

require (
	github.com/kubeflow/trainer/v2 v2.3.0
	github.com/kubeflow/training-operator v1.9.4
	sigs.k8s.io/jobset v0.12.0
	sigs.k8s.io/kueue v0.19.2
)
