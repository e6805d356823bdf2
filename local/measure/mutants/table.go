package main

import (
	"fmt"
	"io"
	"regexp"
	"text/tabwriter"
)

// count is what became of the rows of a group.
type count struct{ killed, survived, gone, failed int }

// table writes what became of the chosen rows, by group and together.
func table(w io.Writer, results []result, wanted *regexp.Regexp) {
	counts, all := map[string]*count{}, &count{}
	for _, group := range groups {
		counts[group] = &count{}
	}
	for _, res := range results {
		for _, c := range []*count{counts[groupOf(res.id)], all} {
			switch {
			case res.err != nil:
				c.failed++
			case res.killed:
				c.killed++
			default:
				c.survived++
			}
		}
	}
	for _, row := range removed {
		if wanted.MatchString(row.id) {
			counts[groupOf(row.id)].gone++
			all.gone++
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\ngroup\tkilled\tsurvived\tgone\terrors\trate\t\n")
	for _, group := range groups {
		if *counts[group] != (count{}) {
			counts[group].write(t, group)
		}
	}
	all.write(t, "all")
	t.Flush()
}

func (c *count) write(w io.Writer, name string) {
	rate := 0.0
	if ran := c.killed + c.survived; ran > 0 {
		rate = 100 * float64(c.killed) / float64(ran)
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.1f %%\t\n", name, c.killed, c.survived, c.gone, c.failed, rate)
}
