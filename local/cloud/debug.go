package cloud

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// debugTimeout is the time-out of everything around a function that is debugged: Lambda's longest.
const debugTimeout = 15 * time.Minute

// debug has one function run under a debugger. A part of its name is enough if no other function has it.
func (p *Plan) debug(name string) error {
	var names []string
	for _, f := range p.Functions {
		names = append(names, f.Name)
	}
	name, err := OneOf(names, name)
	if err != nil {
		return err
	}
	f := p.function(name)
	if f.Package == "" {
		return fmt.Errorf("%s: only a function that is built from its package can be debugged here", f.of)
	}
	f.debugged, f.Timeout, f.MaxInstances = true, debugTimeout, 1
	for _, m := range p.Mappings {
		for i := range p.Queues {
			if q := &p.Queues[i]; m.Function == name && m.Queue == q.Name {
				q.Attributes["VisibilityTimeout"] = fmt.Sprint(debugTimeout.Seconds())
			}
		}
	}
	for i := range p.APIs {
		for _, to := range p.APIs[i].Routes {
			if to.Function == name {
				p.APIs[i].timeout = debugTimeout
			}
		}
	}
	return nil
}

// OneOf is the name that a text is, or else has it as a part, if it is the only one.
func OneOf(names []string, text string) (string, error) {
	if slices.Contains(names, text) {
		return text, nil
	}
	var found []string
	for _, name := range names {
		if strings.Contains(name, text) {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%q names %d functions: there are %s", text, len(found), strings.Join(names, ", "))
	}
	return found[0], nil
}

// debugger is a program that runs a binary under Delve, which waits for a client.
func (r *Running) debugger(f Function, bin string) (path string, err error) {
	dlv, err := exec.LookPath("dlv")
	if err != nil {
		return "", errors.New("dlv is not on PATH: go install github.com/go-delve/delve/cmd/dlv@latest")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		return "", err
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	path = filepath.Join(filepath.Dir(bin), f.Name+"-debugged.sh")
	const script = "#!/bin/sh\nexec '%s' exec --headless --accept-multiclient --check-go-version=false --listen=%s '%s'\n"
	text := fmt.Sprintf(script, dlv, at, bin)
	r.report("%s waits for a debugger when it is invoked: dlv connect %s", f.Name, at)
	return path, os.WriteFile(path, []byte(text), 0o700)
}
