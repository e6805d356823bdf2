package child

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Daemon is a server of tests that can be killed and started again, at the same address and with
// the files that it had. It says nothing when it is ready: it is asked. On Linux it ends with this
// process. Its methods are called by one goroutine at a time.
type Daemon struct {
	Name    string           // for errors
	Folder  string           // a temporary one, of [Folder]
	Port    int              // of [FreePort]
	Command func() *exec.Cmd // makes the command for a start
	Ready   func() error     // nil when the server does its work

	process *Process // the last one; nil before the first start
	remove  func()
}

// NewDaemon returns one with a folder and a port. The caller sets Command and Ready, and starts it.
func NewDaemon(name, pattern string) (*Daemon, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	folder, remove, err := Folder(pattern)
	return &Daemon{Name: name, Folder: folder, Port: port, remove: remove}, err
}

// Address is its host and port.
func (d *Daemon) Address() string { return address(d.Port) }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// PID is the process id of the last start.
func (d *Daemon) PID() int { return d.process.PID() }

// Start starts the server, for the first time or again, and waits until it is ready.
func (d *Daemon) Start() error {
	if d.runs() {
		return fmt.Errorf("%s runs already", d.Name)
	}
	p, err := Start(d.Command())
	if err != nil {
		return fmt.Errorf("start %s: %w", d.Name, err)
	}
	d.process = p
	if err := p.await(d.Ready); err != nil {
		d.Kill() // it is of no use; its output says why
		return fmt.Errorf("%s did not start: %w; the last it said:\n%s", d.Name, err, p.output)
	}
	return nil
}

func (d *Daemon) runs() bool {
	if d.process == nil {
		return false
	}
	select {
	case <-d.process.ended:
		return false
	default:
		return true
	}
}

// await asks until the server is ready.
func (p *Process) await(ready func() error) error {
	for begin := time.Now(); ; {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended before it answered: %v", p.err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Since(begin) > startTimeout {
			return fmt.Errorf("it was not ready within %v: %w", startTimeout, err)
		}
	}
}

// Kill kills the server and its own children with SIGKILL, and returns when all of them have
// ended. It does nothing to a server that does not run.
func (d *Daemon) Kill() {
	if !d.runs() {
		return
	}
	server := d.process.cmd.Process
	_ = server.Signal(syscall.SIGSTOP) // so that it does not see its children end, and makes no others
	for begin := time.Now(); !isStopped(server.Pid) && time.Since(begin) < time.Second; {
		time.Sleep(time.Millisecond) // the signal takes effect later
	}
	for _, pid := range Descendants(server.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = server.Kill() // it may have ended by itself
	// Then all that have its standard error have ended, too.
	<-d.process.ended
}

// stopTimeout is the time for an orderly end.
const stopTimeout = 10 * time.Second

// Stop ends the server in order, and kills it if it still runs 10 s later. It does nothing to a
// server that does not run.
func (d *Daemon) Stop() {
	if !d.runs() {
		return
	}
	_ = d.process.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-d.process.ended:
	case <-time.After(stopTimeout):
		d.Kill()
	}
}

// Close stops the server and removes its folder.
func (d *Daemon) Close() {
	d.Stop()
	d.remove()
}

// isStopped reports whether the process has stopped or ended, where there is a /proc.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return err != nil || len(f) > 0 && (f[0][0] == 'T' || f[0][0] == 'Z')
}

// Descendants are the processes that a process has started, and those that these have started, where there is a /proc.
func Descendants(pid int) (all []int) {
	children := map[string][]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, file := range files {
		stat, _ := os.ReadFile(file) // empty if it has ended since
		// pid (name) state parent …; the name may have spaces and brackets
		if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(f) > 1 {
			children[f[1]] = append(children[f[1]], filepath.Base(filepath.Dir(file)))
		}
	}
	for next := children[strconv.Itoa(pid)]; len(next) > 0; next = append(next[1:], children[next[0]]...) {
		id, _ := strconv.Atoi(next[0]) // by the pattern
		all = append(all, id)
	}
	return all
}

// busOffset is from the port of a Redis to that for the others of its cluster.
const busOffset = 10000

// FreePort returns a TCP port that is free on 127.0.0.1, as is the one 10000 above it, where a Redis
// listens for its cluster. The operating system gives neither to a socket that asks for any port,
// so they are still free when a server that was killed starts again.
func FreePort() (int, error) {
	for range 100 {
		port := 10000 + rand.IntN(12000)
		if free(port) && free(port+busOffset) {
			return port, nil
		}
	}
	return 0, errors.New("no TCP port from 10000 to 21999 is free on 127.0.0.1")
}

func free(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
