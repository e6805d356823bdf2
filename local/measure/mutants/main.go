// Command mutants measures the tests of the engine: it makes a fixed list of mistakes in the code, one at a
// time, and counts those that the tests find.
//
//	go run ./local/cmd/with-dynamodb -- go run ./local/measure/mutants
//
// It changes no file of the repository: go test reads the mutated file in place of the real one. The whole
// list takes about an hour on 2 idle cores. baseline.txt has the rates that must not fall.
//
// # Maintain the list
//
// A row names the folder of its package, not the file, and blanks do not count: code may move within its
// package and be indented otherwise. A test of this package fails where a row's text is not found exactly
// once. If the code was renamed, rename it in the row. If what the row breaks exists no longer, move its id
// to the list of removed rows, with the reason. Then compile all mutants:
//
//	go run ./local/measure/mutants -compile
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"time"
)

func main() {
	only := flag.String("run", "", "run only the rows whose id matches this regular `expression`")
	jobs := flag.Int("j", 2, "run so many mutants at the same time")
	out := flag.String("o", "", "write the results to this `file` too")
	compile := flag.Bool("compile", false, "only compile the mutants")
	timeout := flag.Duration("timeout", 5*time.Minute, "a package whose tests take longer hangs, which kills the mutant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *only, *out, *jobs, *compile, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, only, out string, jobs int, compile bool, timeout time.Duration) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	r := &runner{root: root, timeout: timeout, compile: compile}
	var chosen []mutant
	for _, m := range mutants() {
		if !wanted.MatchString(m.id) {
			continue
		}
		if _, _, err := m.apply(root); err != nil {
			return err
		}
		chosen = append(chosen, m)
	}
	w := io.Writer(os.Stdout)
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		defer f.Close()
		w = io.MultiWriter(w, f)
	}
	if !compile {
		if err := r.baseline(ctx, chosen); err != nil {
			return err
		}
	}
	results := r.all(ctx, chosen, jobs, w)
	if err := ctx.Err(); err != nil {
		return err
	}
	if !compile {
		table(w, results, wanted)
	}
	for _, res := range results {
		if res.err != nil {
			return errors.New("some rows are wrong, see above")
		}
	}
	return nil
}

// all runs the mutants and writes a line when one has ended. The results are in the order of the list.
func (r *runner) all(ctx context.Context, list []mutant, jobs int, w io.Writer) []result {
	results := make([]result, len(list))
	next := make(chan int)
	var writing sync.Mutex
	var workers sync.WaitGroup
	for range max(jobs, 1) {
		workers.Go(func() {
			for i := range next {
				res := r.mutant(ctx, list[i])
				results[i] = res
				if ctx.Err() != nil {
					continue // it was stopped, and says nothing
				}
				writing.Lock()
				fmt.Fprintln(w, res)
				writing.Unlock()
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	workers.Wait()
	return results
}
