//go:build linux

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// slurm is a cluster of two nodes on this machine, without a database and without systemd.
type slurm struct {
	folder  string
	daemons []*exec.Cmd
}

const slurmConf = `ClusterName=bulkscan
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=16817
SlurmUser=%[2]s
SlurmdUser=%[2]s
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=%[3]s/open/munge.sock,cred_expire=5
StateSaveLocation=%[3]s/state
SlurmdSpoolDir=%[3]s/spool/%%n
SlurmctldPidFile=%[3]s/run/ctld.pid
SlurmdPidFile=%[3]s/run/%%n.pid
SlurmctldLogFile=%[3]s/log/ctld.log
SlurmdLogFile=%[3]s/log/%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=2
MinJobAge=3600
SlurmdTimeout=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
NodeName=n[1-2] NodeHostname=%[1]s NodeAddr=127.0.0.1 Port=[16818-16819] CPUs=4 RealMemory=2000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP GraceTime=20
PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=INFINITE State=UP
`

// startSlurm starts the cluster, or skips the test where Slurm is not installed.
func startSlurm(t *testing.T) *slurm {
	t.Helper()
	for _, program := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIPPED: needs Slurm (apt-get install slurmctld slurmd slurm-client munge): %v", err)
		}
	}
	// munged refuses a folder below a folder that other users may write to.
	folder, err := os.MkdirTemp("/run", "bulkscan-slurm-*")
	if err != nil {
		t.Skipf("SKIPPED: needs the right to create a folder in /run: %v", err)
	}
	s := &slurm{folder: folder}
	for _, name := range []string{"munge", "state", "spool/n1", "spool/n2", "log", "run"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// munged needs a socket that all users may reach.
	if err := errors.Join(os.Chmod(folder, 0o755), os.Mkdir(filepath.Join(folder, "open"), 0o755)); err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 1024)
	_, _ = rand.Read(key) // it never fails
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	user, err := exec.CommandContext(t.Context(), "id", "-un").Output()
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(folder, "slurm.conf")
	write := func(path string, data []byte, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, data, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(folder, "munge", "key"), key, 0o600)
	write(conf, fmt.Appendf(nil, slurmConf, host, strings.TrimSpace(string(user)), folder), 0o644)
	t.Setenv("SLURM_CONF", conf)
	t.Cleanup(func() { s.stop(t) })
	munge, socket := filepath.Join(folder, "munge"), filepath.Join(folder, "open", "munge.sock")
	s.daemon(t, "munged", "--foreground", "--key-file", munge+"/key", "--socket", socket, "--pid-file", munge+"/pid",
		"--log-file", munge+"/log", "--seed-file", munge+"/seed")
	if !eventually(func() bool { _, err := os.Stat(socket); return err == nil }) {
		t.Fatal("munged does not start")
	}
	s.daemon(t, "slurmctld", "-D", "-i")
	s.daemon(t, "slurmd", "-D", "-N", "n1")
	s.daemon(t, "slurmd", "-D", "-N", "n2")
	if !eventually(func() bool {
		return strings.Count(s.try("sinfo", "-h", "-N", "-p", "main", "-t", "idle"),
			"\n") == 2
	}) {
		t.Fatalf("no two idle nodes:\n%s", s.try("sinfo", "-N"))
	}
	return s
}

func (s *slurm) daemon(t *testing.T, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s.daemons = append(s.daemons, c)
}

// stop ends the cluster: the jobs first, then the daemons, munged last.
func (s *slurm) stop(t *testing.T) {
	_ = s.try("scancel", "--full", "--me")
	for i := len(s.daemons) - 1; i >= 0; i-- {
		c := s.daemons[i]
		_ = c.Process.Signal(os.Interrupt)
		ended := time.AfterFunc(5*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		ended.Stop()
	}
	if t.Failed() {
		log, _ := os.ReadFile(filepath.Join(s.folder, "log", "ctld.log"))
		t.Logf("slurmctld:\n%s", log)
	}
	if err := os.RemoveAll(s.folder); err != nil {
		t.Error(err)
	}
}

// try runs one of Slurm's commands, which a busy controller may refuse, and returns what it prints.
func (s *slurm) try(name string, args ...string) string {
	out, _ := exec.Command("timeout", append([]string{"10", name}, args...)...).CombinedOutput()
	return string(out)
}

// submit returns the number of a batch job.
func (s *slurm) submit(t *testing.T, args ...string) (job string) {
	t.Helper()
	said := s.try("sbatch", args...)
	if _, err := fmt.Sscanf(said, "Submitted batch job %s", &job); err != nil {
		t.Fatalf("sbatch: %s", said)
	}
	return job
}

// running returns the tasks that run, each as INDEX NODE.
func (s *slurm) running() []string {
	return strings.Split(strings.TrimSpace(s.try("squeue", "-h", "-r", "-t", "R", "-o", "%K %N")), "\n")
}

// TestSlurm runs deploy/slurm/scan.sbatch on a real cluster: an array of six shares, two at once. A job of a higher
// priority preempts tasks, a process is killed, a task is requeued, a node goes down, and a task is told to end.
// Afterwards the rows are those of one process.
func TestSlurm(t *testing.T) {
	notShort(t)
	s := startSlurm(t)
	w := newShareWorld(t, 1500)
	folder := t.TempDir()
	calm, out, logs := filepath.Join(folder, "calm"), filepath.Join(folder, "out"), filepath.Join(folder, "logs")
	if err := os.Mkdir(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	w.scan(t, calm, "--retries", "0").exits(t, 0)
	for name, value := range map[string]string{
		"LIST": w.list, "OUT": out, "WORKERS": "2", "BULKSCAN_SCAN_ID": "s", "BULKSCAN_RESOLVER": w.web.DNSAddr().String(),
		"BULKSCAN_CONNECT_TO": strings.Join(w.web.ConnectTo(), " "),
		"BULKSCAN_CA_FILE":    filepath.Join(filepath.Dir(w.list), "ca.pem"),
		"FLAGS":               "--allow-private --retries 0 --host-rate 0 --ip-rate 0 --dns-rate 0 --retry-after 0s --timeout 3s --part-rows 20 --rate 60",
	} {
		t.Setenv(name, value)
	}
	job := s.submit(t, "--array=0-5%2", "--cpus-per-task=1", "--mem=100", "--signal=B:TERM@30", "--output="+logs+"/%a.log",
		filepath.Join("..", "..", "deploy", "slurm", "scan.sbatch"))
	say := func() string {
		var b strings.Builder
		for _, part := range []string{s.try("squeue", "-r"), s.try("scontrol", "-o", "show", "job", job)} {
			b.WriteString(part)
		}
		files, _ := filepath.Glob(logs + "/*.log")
		for _, file := range files {
			text, _ := os.ReadFile(file)
			fmt.Fprintf(&b, "%s\n%s\n", filepath.Base(file), text)
		}
		return b.String()
	}
	wait := func(what string, holds func() bool) {
		t.Helper()
		if !waittest.Until(200*time.Millisecond, holds) {
			t.Fatalf("no %s:\n%s", what, say())
		}
		t.Logf("%s: %s", what, strings.ReplaceAll(strings.TrimSpace(start(t, "status", out).ended(t)), "\n", "; "))
	}
	grown := func(by int) func() bool {
		had := commits(out)
		return func() bool { return commits(out) >= had+by && len(s.running()) > 0 && s.running()[0] != "" }
	}
	task := func() (index, node string) {
		_, _ = fmt.Sscan(s.running()[0], &index, &node)
		return index, node
	}

	wait("commits", grown(4))
	_, node := task()
	urgent := s.submit(t, "--partition=urgent", "--nodelist="+node, "--exclusive", "--output=/dev/null", "--wrap=true")
	wait("end of a task that job "+urgent+" preempts",
		func() bool { return strings.Contains(say(), "interrupted; everything finished so far is kept") })
	wait("commits after a preemption", grown(4))
	for _, pid := range sharePIDs(t, out) {
		t.Logf("SIGKILL to process %d: %v", pid, syscall.Kill(pid, syscall.SIGKILL))
	}
	wait("commits after killed processes", grown(4))
	index, _ := task()
	t.Logf("requeue of task %s: %q", index, s.try("scontrol", "requeue", job+"_"+index))
	wait("commits after a requeue", grown(4))
	_, node = task()
	t.Logf("node %s down: %q", node, s.try("scontrol", "update", "NodeName="+node, "State=DOWN", "Reason=test"))
	wait("commits after a node went down", grown(4))
	// ReturnToService may have done it already.
	t.Logf("node %s up: %q", node, s.try("scontrol", "update", "NodeName="+node, "State=RESUME"))
	index, _ = task()
	t.Logf("SIGTERM to task %s: %q", index, s.try("scancel", "--batch", "--signal=TERM", job+"_"+index))
	wait("end of the job", func() bool { return s.try("squeue", "-h", "-r") == "" })
	for _, line := range strings.Split(strings.TrimSpace(s.try("scontrol", "-o", "show", "job", job)), "\n") {
		if !strings.Contains(line, "JobState=COMPLETED") {
			t.Errorf("a task did not complete: %s", line)
		}
	}
	if said := s.try("scontrol", "-o", "show", "job", urgent); !strings.Contains(said, "JobState=COMPLETED") {
		t.Errorf("the job that preempts did not complete: %s", said)
	}
	if t.Failed() {
		t.Log(say())
	}
	start(t, "collect", out).exits(t, 0) // which a share has done
	same(t, unordered(snapshot(t, out)), unordered(snapshot(t, calm)), "after the array")
	tidy(t, out)
	clean(t, out)
}

// sharePIDs are the processes that write shares now, by their records.
func sharePIDs(t *testing.T, out string) (pids []int) {
	t.Helper()
	records, err := commit.Shares(t.Context(), mustPlace(t, out), &commit.Manifest{ScanID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.State == commit.ShareRunning {
			pids = append(pids, r.Holder.PID)
		}
	}
	return pids
}

// ended waits for the end of a process, and returns what it has printed.
func (p *process) ended(t *testing.T) string {
	t.Helper()
	_ = p.cmd.Wait() // the state says more than the error
	return p.stdout.String() + p.stderr.String()
}
