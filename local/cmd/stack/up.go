package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/local/cloud"
)

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(v string) error {
	*l = append(*l, v)
	return nil
}

const upUsage = `local up [flags] PATH: run what the cloud assembly or the template at PATH describes
local up [flags] -function PKG ...: run functions without a template
local up [flags] @FILE: the same with flags of a file, one a line, values without quotes, # for comments

Functions without a template have a table of records, named in IDEM_TABLE, and the URL of each
queue in a variable: that of the queue order-events is QUEUE_ORDER_EVENTS.

`

// up runs what templates or flags describe until the context ends.
func up(ctx context.Context, args []string, out io.Writer) error {
	var o cloud.Options
	var ignore, parameters list
	var functions functionFlags
	fresh, quiet, outputs := false, false, ""
	flags := flag.NewFlagSet("local up", flag.ExitOnError)
	flags.Var(&ignore, "ignore", "leave out resources of a `TYPE`; may be repeated")
	flags.Var(&parameters, "parameter", "`NAME=VALUE` of a parameter of the template; may be repeated")
	flags.StringVar(&o.Dir, "dir", "", "folder in which functions are built (default: the one above the assembly, "+
		"or of the file of flags, or the working directory)")
	flags.StringVar(&o.CacheDir, "cache", "", "folder for what is fetched once (default: the user's cache folder)")
	flags.IntVar(&o.Port, "port", 0, "port of the first API; the others have the next ones (default: free ones)")
	flags.BoolVar(&fresh, "fresh", false, "begin with empty tables and queues")
	flags.Func("iam", "`report`, or deny, calls that the policies of a function's role do not grant (default report)",
		func(mode string) error {
			if o.Deny = mode == "deny"; !o.Deny && mode != "report" {
				return errors.New("use report or deny")
			}
			return nil
		})
	flags.StringVar(&o.Debug, "debug", "", "run `FUNCTION`, a name or a part of it, under Delve (dlv), without time-outs")
	flags.BoolVar(&quiet, "quiet", false, "print URLs and errors alone: neither progress nor what functions write")
	flags.StringVar(&outputs, "outputs", "", "`FILE` for the stacks' outputs, as from cdk deploy --outputs-file")
	functions.register(flags)
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, upUsage)
		flags.PrintDefaults()
	}
	args, err := withFiles(args)
	if err != nil {
		return err
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	target := flags.Arg(0)
	switch {
	case len(functions) > 0:
		o.Dir, _ = filepath.Abs(o.Dir) // an error comes again below
		target = o.Dir
	case flags.NArg() > 1:
		return fmt.Errorf("%q comes after %q: flags come before the one PATH", flags.Arg(1), flags.Arg(0))
	case flags.NArg() == 0:
		flags.Usage()
		os.Exit(2)
	}
	path, err := filepath.Abs(target)
	if err != nil {
		return err
	}
	o.Ignore, o.Parameters = ignore, map[string]string{}
	for _, p := range parameters {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("-parameter %s: write it as NAME=VALUE", p)
		}
		o.Parameters[name] = value
	}
	if o.Dir == "" {
		o.Dir = filepath.Dir(path)
	}
	f, err := newFolder(o.CacheDir)
	if err != nil {
		return err
	}
	defer f.remove()
	o.RunDir = string(f)
	var unlock func()
	if o.DataDir, unlock, err = dataOf(ctx, o.CacheDir, path, fresh); err != nil {
		return err
	}
	defer unlock()
	if len(functions) > 0 {
		if path, err = functions.write(ctx, flags.Args(), o.Dir, f); err != nil {
			return err
		}
	}
	say := log.New(out, "", 0).Printf
	more := say // what -quiet leaves out
	if quiet {
		more = func(string, ...any) {}
	}
	o.Output, o.Quiet, o.Log = withoutMetrics{out}, quiet, func(format string, args ...any) { more("  "+format, args...) }
	screen := &screen{say: say, more: more, printed: map[string]bool{}}
	if !quiet {
		o.Invoked = func(inv cloud.Invocation) { say("%s", requestLine(ctx, screen.stores(), inv)) }
	}
	seen := stateOf([]string{path, o.Dir})
	r, err := cloud.Start(ctx, path, &o)
	if err != nil {
		return err
	}
	defer r.Close()
	alive, cancel := r.Alive(ctx)
	defer cancel(nil)
	writeOutputs := func() error {
		if outputs == "" {
			return nil
		}
		return r.Plan().WriteOutputs(outputs)
	}
	err = errors.Join(serveControl(r, f), screen.describe(alive, r), writeOutputs())
	if err != nil {
		return err
	}
	watch(alive, []string{path, o.Dir}, seen, func() {
		begun := time.Now()
		err := r.Update(alive)
		if err == nil {
			err = errors.Join(screen.describe(alive, r), writeOutputs())
		}
		switch {
		case alive.Err() != nil:
		case err != nil:
			say("%v", err)
		default:
			more("up to date after %v", time.Since(begun).Round(100*time.Millisecond))
		}
	})
	r.Close()
	if lines := r.Ungranted(); len(lines) > 0 {
		say("Permissions that are missing, or were not evaluated:\n  %s", strings.Join(lines, "\n  "))
	}
	more("stopped")
	if err := context.Cause(alive); !errors.Is(err, context.Canceled) {
		return err // a server has ended
	}
	return nil
}

// withoutMetrics leaves out the lines of metrics that functions write (the embedded metric format): a line about each
// request says the same in short.
type withoutMetrics struct{ io.Writer }

func (w withoutMetrics) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`] {"_aws":`)) {
		return len(line), nil
	}
	return w.Writer.Write(line)
}

// watchEvery is how often files are looked at.
const watchEvery = 500 * time.Millisecond

// watch calls changed after each change of sources and templates since a state of them, until the context ends.
func watch(ctx context.Context, paths []string, before string, changed func()) {
	for smithytime.SleepWithContext(ctx, watchEvery) == nil {
		if now := stateOf(paths); now != before {
			before = now
			changed()
		}
	}
}

// stateOf differs after a change of a Go file, a go.mod or a template.
func stateOf(paths []string) string {
	var state strings.Builder
	for _, path := range paths {
		_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil: // it is being written, or was deleted
				return nil
			case d.IsDir() && name != path && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
				return fs.SkipDir
			case !slices.Contains([]string{".go", ".mod", ".sum", ".work", ".json", ".yaml", ".yml"}, filepath.Ext(name)):
				return nil
			}
			if info, err := d.Info(); err == nil {
				fmt.Fprintln(&state, name, info.ModTime().UnixNano(), info.Size())
			}
			return nil
		})
	}
	return state.String()
}

// dataOf is the folder with the tables of what a path describes, which stays among those of running stacks. It is one
// command's until unlock is called.
func dataOf(ctx context.Context, cacheDir, path string, fresh bool) (dir string, unlock func(), err error) {
	run, err := runDir(cacheDir)
	if err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256([]byte(path))
	dir = filepath.Join(run, "tables", filepath.Base(path)+"-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unlock, err = cache.Lock(ctx, dir+".lock", func() { cancel(errors.New("another local up runs it: end that first")) })
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, cmp.Or(context.Cause(ctx), err))
	}
	if fresh {
		err = os.RemoveAll(dir)
	}
	if err = errors.Join(err, os.MkdirAll(dir, 0o700)); err != nil {
		unlock()
	}
	return dir, unlock, err
}
