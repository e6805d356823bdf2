package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/local/cloud"
)

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(v string) error {
	*l = append(*l, v)
	return nil
}

// up runs what templates describe until the context ends.
func up(ctx context.Context, args []string, out io.Writer) error {
	var o cloud.Options
	var ignore, parameters list
	fresh := false
	flags := flag.NewFlagSet("local up", flag.ExitOnError)
	flags.Var(&ignore, "ignore", "leave out resources of a `TYPE`; may be repeated")
	flags.Var(&parameters, "parameter", "`NAME=VALUE` of a parameter of the template; may be repeated")
	flags.StringVar(&o.Dir, "dir", "", "folder in which functions are built (default: the one above the assembly)")
	flags.StringVar(&o.CacheDir, "cache", "", "folder for what is fetched once (default: the user's cache folder)")
	flags.IntVar(&o.Port, "port", 0, "port of the first API; the others have the next ones (default: free ones)")
	flags.BoolVar(&fresh, "fresh", false, "begin with empty tables")
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, "local up [flags] PATH: run what the cloud assembly or the template at PATH describes\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		os.Exit(2)
	}
	path, err := filepath.Abs(flags.Arg(0))
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
	if o.BinDir = f.path("bin"); os.Mkdir(o.BinDir, 0o700) != nil {
		return fmt.Errorf("cannot make %s", o.BinDir)
	}
	if o.DataDir, err = dataOf(o.CacheDir, path, fresh); err != nil {
		return err
	}
	say := log.New(out, "", 0).Printf
	o.Output, o.Log = out, func(format string, args ...any) { say("  "+format, args...) }
	r, err := cloud.Start(ctx, path, &o)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := describe(ctx, r, say); err != nil {
		return err
	}
	watch(ctx, []string{path, o.Dir}, func() {
		begun := time.Now()
		switch err := r.Update(ctx); {
		case ctx.Err() != nil:
		case err != nil:
			say("%v\nWhat ran before runs on.", err)
		default:
			say("up to date after %v", time.Since(begun).Round(100*time.Millisecond))
		}
	})
	say("stopped")
	return nil
}

// watchEvery is how often files are looked at.
const watchEvery = 500 * time.Millisecond

// watch calls changed after each change of sources and templates, until the context ends.
func watch(ctx context.Context, paths []string, changed func()) {
	before := stateOf(paths)
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
			case !slices.Contains([]string{".go", ".mod", ".json", ".yaml", ".yml"}, filepath.Ext(name)):
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

// dataOf is the folder with the tables of what a path describes. It is next to those of running stacks, and stays.
func dataOf(cacheDir, path string, fresh bool) (string, error) {
	run, err := runDir(cacheDir)
	if err != nil {
		return "", err
	}
	name := strings.Trim(strings.NewReplacer("/", "-", " ", "-").Replace(path), "-")
	dir := filepath.Join(filepath.Dir(run), "tables", name)
	if fresh {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// describe says what runs, and how to call it.
func describe(ctx context.Context, r *cloud.Running, say func(string, ...any)) error {
	p := r.Plan()
	for _, kind := range slices.Sorted(maps.Keys(p.Silent)) {
		say("without behaviour here: %d %s", len(p.Silent[kind]), kind)
	}
	for _, note := range p.Notes {
		say("%s", note)
	}
	for _, t := range p.Tables {
		say("table    %s", t.Name)
		if dynamostore.Check(ctx, r.DynamoDB, t.Name) != nil {
			continue // it is not one of records
		}
		url, err := consoleOf(r, t.Name)
		if err != nil {
			return err
		}
		say("console  %s of %s", url, t.Name)
	}
	for _, q := range p.Queues {
		say("queue    %s", q.Name)
	}
	for _, f := range p.Functions {
		say("function %s", f.Name)
	}
	for _, a := range p.APIs {
		for _, route := range slices.Sorted(maps.Keys(a.Routes)) {
			method, path, _ := strings.Cut(route, " ")
			say("route    %-7s %s%s  %s", method, r.Endpoints.APIs[a.Key], path, a.Routes[route].Auth)
		}
	}
	token, err := r.Issuer.Token(defaultTenant, nil, tokenLifetime)
	if err != nil {
		return err
	}
	say("\ncredentials %s, secret %s; a token of %s: %s", cloud.AccessKey, cloud.SecretKey, defaultTenant, token)
	if r.Endpoints.DynamoDB != "" {
		say("export AWS_ENDPOINT_URL_DYNAMODB=%s", r.Endpoints.DynamoDB)
	}
	if r.Endpoints.Queues != "" {
		say("export AWS_ENDPOINT_URL_SQS=%s", r.Endpoints.Queues)
	}
	return nil
}

// consoleOf serves the operators' pages of a table.
func consoleOf(r *cloud.Running, table string) (string, error) {
	store, err := dynamostore.NewAdminStore(r.DynamoDB, table, nil)
	if err != nil {
		return "", err
	}
	rc, err := reconcile.New(store, nil)
	if err != nil {
		return "", err
	}
	operator, err := user.Current()
	if err != nil {
		return "", err
	}
	pages, err := console.New(rc, &console.Options{Who: console.ThisMachine(operator.Username)})
	if err != nil {
		return "", err
	}
	return r.Serve(pages)
}
