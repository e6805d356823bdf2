package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/cmd/gorun"
)

// functionFlags are flags that describe functions, as they were given. Those behind a -function, up to the next one,
// belong to it. They become a template, which then runs as any other does.
type functionFlags []functionFlag

type functionFlag struct{ name, value string }

func (f functionFlag) refuse(format string, args ...any) error {
	given := "-" + f.name
	if f.value != "true" {
		given += " " + f.value
	}
	return fmt.Errorf("%s: %w", given, fmt.Errorf(format, args...))
}

// register adds the flags to a set. Their values are looked at when the template is written.
func (f *functionFlags) register(to *flag.FlagSet) {
	add := func(name string) func(string) error {
		return func(value string) error {
			*f = append(*f, functionFlag{name, value})
			return nil
		}
	}
	for name, usage := range map[string]string{
		"function": "begin a function, which is built from the main package `PKG`; the flags behind it belong to it",
		"route":    "of a function: a `\"METHOD /PATH\"` of the HTTP API that comes to it; may be repeated",
		"queue":    "of a function: the `NAME` of a queue whose messages come to it; the dead-letter queue is NAME-dead",
		"schedule": "of a function: the `TIME` between two invocations in whole minutes, such as 5m",
		"timeout": "of a function: the `TIME` after which an invocation is killed, in whole seconds, such as 20s (default " +
			defaultTimeout.String() + ")",
		"env": "of a function: a `NAME=VALUE` of its environment; may be repeated",
	} {
		to.Func(name, usage, add(name))
	}
	for name, usage := range map[string]string{
		"fifo": "of a function: its queue is FIFO",
		"stream": "of a function: it is the relay of the outbox, which gets the messages that transactions publish, " +
			"from the stream of the table of records",
		"jwt": "routes of functions need a token, such as the one that is printed (default: all callers may use them)",
	} {
		to.BoolFunc(name, usage, add(name))
	}
}

// withFiles replaces each @FILE by the flags that the file has, one a line: a name, and behind a space the value as it
// is, without quotes. Empty lines and lines with # at their beginning are left out. Functions are then built in the
// folder of the last file, unless -dir names another one.
func withFiles(args []string) ([]string, error) {
	var all []string
	dir := ""
	for _, arg := range args {
		name, ok := strings.CutPrefix(arg, "@")
		if !ok {
			all = append(all, arg)
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("the file of flags: %w", err)
		}
		dir = filepath.Dir(name)
		for i, line := range strings.Split(string(text), "\n") {
			switch line = strings.TrimSpace(line); {
			case line == "" || line[0] == '#':
				continue
			case line[0] != '-':
				return nil, fmt.Errorf("%s:%d: %q is no flag: write one a line, such as -route POST /payments", name, i+1, line)
			}
			if end := strings.IndexAny(line, " \t="); end > 0 {
				line = line[:end] + "=" + strings.TrimSpace(line[end+1:])
			}
			all = append(all, line)
		}
	}
	if dir != "" {
		all = append([]string{"-dir=" + dir}, all...) // a later one replaces it
	}
	return all, nil
}

// write writes the template of the functions into a folder, and returns its path. Their packages are in the folder dir.
// Rest is what is left of the command line, which is an error. The error has all that is wrong, a line each.
func (f functionFlags) write(ctx context.Context, rest []string, dir string, into folder) (string, error) {
	if len(rest) > 0 {
		return "", fmt.Errorf("%q is no flag: write values with a space in quotes, such as -route \"POST /payments\", and "+
			"give either a template or -function", rest[0])
	}
	t, err := f.template(func(pkg string) (string, error) { return nameOf(ctx, dir, pkg) })
	if err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(map[string]any{"Resources": t}, "", "  ")
	if err != nil {
		return "", err
	}
	path := into.path("local.template.json")
	return path, os.WriteFile(path, text, 0o600)
}

// nameOf is the last part of a main package's import path, as in the name of its program.
func nameOf(ctx context.Context, dir, pkg string) (string, error) {
	out, err := gorun.Go(ctx, nil, "list", "-C", dir, "-find", "-f", "{{.Name}} {{.ImportPath}}", "--", pkg)
	exit, failed := errors.AsType[*exec.ExitError](err)
	name, importPath, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	switch {
	case failed:
		return "", fmt.Errorf("there is no such package in %s: %s", dir, strings.TrimSpace(string(exit.Stderr)))
	case err != nil:
		return "", err
	case strings.Contains(importPath, "\n") || importPath == "command-line-arguments" || importPath == "":
		return "", errors.New("it is not one package: name the folder of a main package, such as ./cmd/charge")
	case name != "main":
		return "", fmt.Errorf("it is package %s, and a function is a main package", name)
	}
	return path.Base(importPath), nil
}

// functions are those that the flags describe. jwt says whether their routes need a token.
func (f functionFlags) functions() (all []*described, jwt bool, wrong []error) {
	var last *described
	routes := map[string]string{}
	for _, flag := range f {
		var err error
		switch {
		case flag.name == "jwt":
			jwt, err = flag.bool()
		case flag.name == "function":
			last = &described{pkg: flag.value, timeout: defaultTimeout, env: map[string]string{}}
			all = append(all, last)
		case last == nil:
			err = flag.refuse("write it behind the -function that it belongs to")
		case flag.name == "route":
			if of := routes[flag.value]; of != "" {
				err = flag.refuse("it is a route of %s already", of)
				break
			}
			routes[flag.value] = last.pkg
			last.routes = append(last.routes, flag.value)
			err = flag.route()
		case flag.name == "queue" && last.queue != "":
			err = flag.refuse("%s has the queue %s, and a function has one: its environment describes one", last.pkg, last.queue)
		case flag.name == "queue":
			if last.queue = flag.value; !queueName.MatchString(flag.value) {
				err = flag.refuse("write a name of up to 70 letters, digits, hyphens and underscores; -fifo adds .fifo to it")
			}
		case flag.name == "fifo":
			last.fifo, err = flag.bool()
		case flag.name == "stream":
			last.stream, err = flag.bool()
		case flag.name == "schedule":
			last.schedule, err = flag.time(time.Minute, 365*24*time.Hour)
		case flag.name == "timeout":
			last.timeout, err = flag.time(time.Second, maxTimeout)
		case flag.name == "env":
			name, value, ok := strings.Cut(flag.value, "=")
			if last.env[name] = value; !ok || name == "" {
				err = flag.refuse("write it as NAME=VALUE")
			}
		}
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(all) == 0 && wrong == nil {
		wrong = append(wrong, errors.New("there is no -function: name the main package of one"))
	}
	return all, jwt, wrong
}

func (f functionFlag) bool() (bool, error) {
	v, err := strconv.ParseBool(f.value)
	if err != nil {
		return false, f.refuse("leave the value out")
	}
	return v, nil
}

// time reads a time of whole units.
func (f functionFlag) time(unit, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(f.value)
	if err != nil || d < unit || d > most || d%unit != 0 {
		return unit, f.refuse("write a multiple of %v up to %v, such as %v", unit, most, 5*unit)
	}
	return d, nil
}

func (f functionFlag) route() error {
	none := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	if _, err := gateway.New(map[string]gateway.Invoke{f.value: none}, nil); err != nil {
		return f.refuse("%s", strings.TrimPrefix(err.Error(), "gateway: "))
	}
	return nil
}

// queueName leaves 10 of SQS's 80 characters to the name of the dead-letter queue.
var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,70}$`)

// template is the resources of a template with the functions, and with the table of records. nameOf gives the name of a
// function by its package.
func (f functionFlags) template(nameOf func(pkg string) (string, error)) (resources, error) {
	all, jwt, wrong := f.functions()
	names, taken := map[string]*described{}, map[string]string{}
	for _, f := range all {
		refuse := functionFlag{"function", f.pkg}.refuse
		var err error
		if f.name, err = nameOf(f.pkg); err != nil {
			wrong = append(wrong, refuse("%w", err))
			continue
		}
		same := strings.ToLower(idOf(f.name))
		if other := names[same]; other != nil {
			wrong = append(wrong, refuse("its name is %s and that of %s is %s: name the folders so that letters or digits "+
				"differ", f.name, other.pkg, other.name))
		}
		names[same] = f
		if f.fifo && f.queue == "" {
			wrong = append(wrong, refuse("-fifo is for a -queue, and it has none"))
		}
	}
	for _, f := range queues(all) {
		same := strings.ToLower(idOf(f.queue))
		if other := taken[same]; other != "" {
			wrong = append(wrong, functionFlag{"queue", f.queue}.refuse("there is the queue %s already: choose a name with "+
				"other letters or digits", other))
		}
		taken[same] = f.queue
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	r := resources{}
	r.addTable()
	for _, f := range all {
		r.addFunction(f, all)
		r.addRoutes(f, jwt)
	}
	return r, nil
}
