package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// openLog returns the file of what one part of the stack writes.
func (s *stack) openLog(name string) (io.Writer, error) {
	if err := os.MkdirAll(s.folder.path("logs"), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(s.folder.path("logs", name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	s.logs[name] = f.Name()
	s.onClose(func() { _ = f.Close() })
	return f, nil
}

type logOptions struct {
	function, cacheDir string
	instance, lines    int
	follow             bool
}

func logsCommand(fs *flag.FlagSet) func(context.Context, io.Writer) error {
	var o logOptions
	fs.StringVar(&o.function, "function", "", "of this one only: "+functionNames()+", or http for errors behind the HTTP API")
	fs.IntVar(&o.instance, "instance", 0, "of the instance with this process id only")
	fs.IntVar(&o.lines, "lines", 50, "how many of the last lines; 0 for all")
	fs.BoolVar(&o.follow, "follow", false, "keep printing what comes, until Ctrl-C")
	declareCache(fs, &o.cacheDir)
	return func(ctx context.Context, out io.Writer) error {
		n, err := running(ctx, o.cacheDir)
		if err != nil {
			return err
		}
		names := slices.Sorted(maps.Keys(n.Logs))
		if o.function != "" {
			if n.Logs[o.function] == "" {
				return misuse("-function is %q; there are: %s", o.function, strings.Join(names, ", "))
			}
			names = []string{o.function}
		}
		return o.show(ctx, out, n, names)
	}
}

// entry is one line of a log: it begins with the function's name and the process id in
// brackets.
type entry struct {
	at             time.Time // of a line that does not say: that of the one before
	instance, text string
}

// show prints the last lines of all instances in the order of their times.
func (o logOptions) show(ctx context.Context, out io.Writer, n note, names []string) error {
	ends := map[string]int64{}
	var all []entry
	for _, name := range names {
		entries, end, err := readLog(n.Logs[name])
		if err != nil {
			return fmt.Errorf("cannot read the log of %s: %w", name, err)
		}
		ends[name] = end
		for _, e := range entries {
			if o.wants(e.instance) {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return a.at.Compare(b.at) })
	if before := len(all) - o.lines; o.lines > 0 && before > 0 {
		all = all[before:]
		fmt.Fprintf(out, "(%d before; -lines 0 shows all)\n", before)
	}
	for _, e := range all {
		if _, err := fmt.Fprintln(out, e.instance, plainLine(e.text)); err != nil {
			return err
		}
	}
	if !o.follow {
		return nil
	}
	return o.tail(ctx, out, n, names, ends)
}

func (o logOptions) wants(instance string) bool {
	return o.instance == 0 || strings.HasSuffix(instance, "["+strconv.Itoa(o.instance)+"]")
}

// readLog reads the whole lines of a log, and how far they reach: the last one may
// still grow.
func readLog(file string) (all []entry, end int64, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	raw = raw[:strings.LastIndexByte(string(raw), '\n')+1]
	var at time.Time
	for line := range strings.Lines(string(raw)) {
		instance, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var stamp struct{ Timestamp time.Time }
		if json.Unmarshal([]byte(text), &stamp) == nil && !stamp.Timestamp.IsZero() {
			at = stamp.Timestamp
		}
		all = append(all, entry{at, instance, text})
	}
	return all, int64(len(raw)), nil
}

// tail prints new lines as they come, until the stack or the context ends.
func (o logOptions) tail(ctx context.Context, out io.Writer, n note, names []string, ends map[string]int64) error {
	for {
		for _, name := range names {
			f, err := os.Open(n.Logs[name])
			if os.IsNotExist(err) {
				return nil // the stack has ended
			}
			if err != nil {
				return err
			}
			err = o.tailFile(f, out, name, ends)
			_ = f.Close() // only read
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (o logOptions) tailFile(f *os.File, out io.Writer, name string, ends map[string]int64) error {
	if _, err := f.Seek(ends[name], io.SeekStart); err != nil {
		return err
	}
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return nil // the rest of the line comes later
		}
		if err != nil {
			return err
		}
		ends[name] += int64(len(line))
		if instance, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); o.wants(instance) {
			if _, err := fmt.Fprintln(out, instance, plainLine(text)); err != nil {
				return err
			}
		}
	}
}

// plainLine writes a structured line for people: time, level, message, the rest.
// Anything else stays as it is.
func plainLine(line string) string {
	var fields map[string]any
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	if dec.Decode(&fields) != nil || fields["message"] == nil {
		return line
	}
	if ns, ok := fields["elapsed"].(json.Number); ok {
		if n, err := ns.Int64(); err == nil {
			fields["elapsed"] = time.Duration(n)
		}
	}
	at := fmt.Sprint(fields["timestamp"])
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = t.Local().Format("15:04:05.000")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-5v %v", at, fields["level"], fields["message"])
	for _, first := range []string{"timestamp", "level", "message"} {
		delete(fields, first)
	}
	rest := slices.Sorted(maps.Keys(fields))
	for _, name := range rest {
		fmt.Fprintf(&b, " %s=%v", name, fields[name])
	}
	return b.String()
}
