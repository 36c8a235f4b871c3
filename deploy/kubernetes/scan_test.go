// Package kubernetes is a module of its own, so that the types of Kubernetes are no prerequisite of bulkscan. Its test
// decodes the manifests strictly: an unknown or misplaced field is an error.
package kubernetes

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestManifests(t *testing.T) {
	text, err := os.ReadFile("scan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config core.ConfigMap
	var scan batch.Job
	var collect batch.CronJob
	for i, into := range []any{&config, &scan, &collect} {
		documents := bytes.Split(text, []byte("\n---\n"))
		if len(documents) != 3 {
			t.Fatalf("%d documents", len(documents))
		}
		if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
			t.Errorf("document %d: %v", i, err)
		}
	}

	// What belongs together.
	if n := config.Data["BULKSCAN_SHARES"]; scan.Spec.Completions == nil ||
		n != strconv.Itoa(int(*scan.Spec.Completions)) || scan.Spec.CompletionMode == nil ||
		*scan.Spec.CompletionMode != batch.IndexedCompletion {
		t.Errorf("BULKSCAN_SHARES is %q, and the job has other completions", n)
	}
	if n := config.Data["BULKSCAN_WORKERS"]; scan.Spec.Parallelism == nil ||
		n != strconv.Itoa(int(*scan.Spec.Parallelism)) {
		t.Errorf("BULKSCAN_WORKERS is %q, and the job has another parallelism", n)
	}
	if scan.Spec.BackoffLimitPerIndex == nil || scan.Spec.Template.Spec.RestartPolicy != core.RestartPolicyNever {
		t.Error("FailIndex needs backoffLimitPerIndex, and a pod failure policy restartPolicy Never")
	}
	names := []string{}
	for _, c := range scan.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	acts := map[int32]batch.PodFailurePolicyAction{}
	for _, rule := range scan.Spec.PodFailurePolicy.Rules {
		if on := rule.OnExitCodes; on != nil {
			if on.ContainerName == nil || !slices.Contains(names, *on.ContainerName) ||
				on.Operator != batch.PodFailurePolicyOnExitCodesOpIn {
				t.Errorf("a rule of no container: %+v", on)
			}
			for _, code := range on.Values {
				acts[code] = rule.Action
			}
		}
	}
	if acts[2] != batch.PodFailurePolicyActionFailIndex || acts[75] != batch.PodFailurePolicyActionCount {
		t.Errorf("exit codes lead to %v", acts)
	}
}
