package shares

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Task is what an engine, which runs array jobs, says about this process.
type Task struct {
	Share  Share
	ScanID string // from the id of the array job; "" if the engine does not tell one
}

// CountVariable names the variable with the number of shares, if the engine tells none or runs only some shares again.
const CountVariable = "BULKSCAN_SHARES"

// engine is the environment of a task of an array job.
type engine struct {
	name, index, count string
	job                string // "" if there is none
}

// engines are tried in this order. An engine that runs on top of another comes first.
var engines = []engine{
	{"AWS Batch", "AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE", "AWS_BATCH_JOB_ID"},
	{"Cloud Run", "CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT", "CLOUD_RUN_EXECUTION"},
	{"Google Batch", "BATCH_TASK_INDEX", "BATCH_TASK_COUNT", ""},
	{"Kubernetes", "JOB_COMPLETION_INDEX", "", ""},
	{"Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_JOB_ID"},
}

// FromEngine reads the variables by which an engine tells a task of an array job which one it is.
func FromEngine(getenv func(string) string) (Task, error) {
	for _, e := range engines {
		if getenv(e.index) == "" {
			continue
		}
		task, err := e.task(getenv)
		if err != nil {
			return Task{}, fmt.Errorf("%s: %w", e.name, err)
		}
		return task, nil
	}
	var names []string
	for _, e := range engines {
		names = append(names, fmt.Sprintf("%s (%s)", e.index, e.name))
	}
	return Task{}, fmt.Errorf("this is no task of an array job: none of %s is set; give --shard I/N",
		strings.Join(names, ", "))
}

func (e engine) task(getenv func(string) string) (t Task, err error) {
	number := func(name string) int {
		n, wrong := strconv.Atoi(getenv(name))
		if wrong != nil && err == nil {
			err = fmt.Errorf("%s is %.40q, not a number", name, getenv(name))
		}
		return n
	}
	t.Share.I = number(e.index)
	switch {
	case getenv(CountVariable) != "":
		t.Share.N = number(CountVariable)
	case e.count == "" || getenv(e.count) == "":
		return t, fmt.Errorf("it does not tell how many shares there are; set %s", CountVariable)
	default:
		t.Share.N = number(e.count)
		if e.name == "Slurm" && err == nil {
			err = e.wholeArray(getenv, t.Share.N)
		}
	}
	if err != nil {
		return t, err
	}
	if e.job != "" {
		// AWS Batch writes JOB:INDEX. A scan id has no colon.
		job, _, _ := strings.Cut(getenv(e.job), ":")
		if t.ScanID = job; e.name == "Slurm" && job != "" {
			t.ScanID = "slurm-" + job
		}
	}
	t.Share, err = check(t.Share)
	return t, err
}

// wholeArray returns an error unless the tasks of a Slurm array are 0, 1, 2 … Slurm tells the number of tasks: for the
// array 3,5, which runs two shares of a scan again, that is 2, not the number of shares.
func (e engine) wholeArray(getenv func(string) string, n int) error {
	if getenv("SLURM_ARRAY_TASK_MIN") == "0" && getenv("SLURM_ARRAY_TASK_MAX") == strconv.Itoa(n-1) {
		return nil
	}
	return errors.New("the tasks of its array are not 0 to " + strconv.Itoa(n-1) + "; submit --array=0-" +
		strconv.Itoa(n-1) + ", or set " + CountVariable + " to the number of shares to run some of them")
}
