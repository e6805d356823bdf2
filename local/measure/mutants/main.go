// Command mutants measures the tests of the engine: it makes a fixed list of mistakes in the code, one at a
// time, and counts those that the tests find.
//
//	go run ./local/cmd/with-dynamodb -- go run ./local/measure/mutants
//
// It changes no file of the repository: go test reads the mutated file in place of the real one. The list is
// mutants.yaml. The command fails if a mistake survives and its row does not say why. make verify runs it.
//
// A row names the folder of its package, not the file, and blanks do not count: code may move within its
// package and be indented otherwise. A test of this package fails where a row's text is not found exactly
// once. If the code was renamed, rename it in the row. If what the row breaks exists no longer, say so in the
// row. Then compile all mutants:
//
//	go run ./local/measure/mutants -compile
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
)

func main() {
	only := flag.String("run", "", "run only the rows whose id matches this regular `expression`")
	jobs := flag.Int("j", 2, "run so many mutants at the same time")
	compile := flag.Bool("compile", false, "only compile the mutants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *only, max(*jobs, 1), *compile); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/idem-go/idempotency").Output()
	return strings.TrimSpace(string(out)), err
}

func measure(ctx context.Context, only string, jobs int, compile bool) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	all, err := mutants()
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if m.Gone == "" && wanted.MatchString(m.ID) {
			chosen = append(chosen, m)
		}
	}
	r := &runner{root: root, compile: compile}
	if err := r.unchanged(ctx, chosen, jobs); err != nil {
		return err
	}
	results := r.all(ctx, chosen, jobs)
	if err := ctx.Err(); err != nil || compile {
		return errors.Join(err, failures(results))
	}
	table(results)
	return failures(results)
}

// all runs the mutants and prints a line when one has ended.
func (r *runner) all(ctx context.Context, chosen []mutant, jobs int) []result {
	results := make([]result, len(chosen))
	next := make(chan int)
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for i := range next {
				results[i] = r.mutant(ctx, chosen[i])
				if ctx.Err() == nil {
					fmt.Println(results[i])
				}
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	workers.Wait()
	return results
}

// failures are the rows that say nothing, and the mistakes that are no longer found.
func failures(results []result) error {
	var all []error
	for _, res := range results {
		switch {
		case res.err != nil:
			all = append(all, fmt.Errorf("%s: %w", res.ID, res.err))
		case !res.killed && res.Survives == "" && res.by == "":
			all = append(all, fmt.Errorf("%s: no test finds it, where %s has: %s", res.ID, cmp.Or(res.By, "none"), res.Wrong))
		case res.killed && res.Survives != "":
			all = append(all, fmt.Errorf("%s: %s finds it, and its row says why none can: %s", res.ID, res.by, res.Survives))
		}
	}
	return errors.Join(all...)
}

// table prints how many mutants of each group were killed.
func table(results []result) {
	killed, count := map[string]int{}, map[string]int{}
	var groups []string
	for _, res := range results {
		g := res.group()
		if count[g] == 0 {
			groups = append(groups, g)
		}
		for _, name := range []string{g, "all"} {
			count[name]++
			if res.killed {
				killed[name]++
			}
		}
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\ngroup\tkilled\tof\trate\t\n")
	for _, g := range append(groups, "all") {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f %%\t\n", g, killed[g], count[g], 100*float64(killed[g])/float64(max(count[g], 1)))
	}
	t.Flush()
}
