package ledger

import (
	"bufio"
	"container/heap"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

const (
	// memory is how many bytes of lines each of the two sorts keeps.
	memory = 16 << 20
	// bufferSize is for each run that is read: 1 MB for a gigabyte.
	bufferSize = 16 << 10
)

// sorter sorts any number of lines, none of them empty. Those beyond its memory lie in a temporary file, in runs
// that are each sorted.
type sorter struct {
	memory int
	lines  []string
	size   int

	file  *os.File
	named bool // the file could not be removed while it is open
	end   int64
	runs  heads
}

func (s *sorter) add(line string) error {
	s.lines = append(s.lines, line)
	if s.size += len(line) + len("\n"); s.size < s.memory {
		return nil
	}
	return s.spill()
}

// spill writes the lines in memory as a run.
func (s *sorter) spill() error {
	err := s.write()
	if err != nil {
		return fmt.Errorf("ledger: a temporary file cannot be written in %s, which needs some 2 KB for each operation "+
			"of the day: %w", os.TempDir(), err)
	}
	return nil
}

func (s *sorter) write() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp("", "idem-ledger-*"); err != nil {
			return err
		}
		// The system deletes it with the process, however that ends.
		s.named = os.Remove(s.file.Name()) != nil
	}
	slices.Sort(s.lines)
	out := bufio.NewWriterSize(io.NewOffsetWriter(s.file, s.end), bufferSize)
	for _, line := range s.lines {
		_, _ = out.WriteString(line)
		_ = out.WriteByte('\n') // its first error is that of Flush
	}
	run := io.NewSectionReader(s.file, s.end, int64(s.size))
	s.runs = append(s.runs, &head{rest: bufio.NewReaderSize(run, bufferSize)})
	s.end += int64(s.size)
	clear(s.lines)
	s.lines, s.size = s.lines[:0], 0
	return out.Flush()
}

// sorted has all lines in their order, once.
func (s *sorter) sorted() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if s.file == nil {
			slices.Sort(s.lines)
			for _, line := range s.lines {
				if !yield(line, nil) {
					return
				}
			}
			return
		}
		if err := s.spill(); err != nil {
			yield("", err)
			return
		}
		for len(s.runs) > 0 { // a heap; each begins with an empty line
			first := s.runs[0]
			if first.line != "" && !yield(first.line, nil) {
				return
			}
			line, err := first.rest.ReadString('\n')
			switch {
			case err == nil:
				first.line = line[:len(line)-1]
				heap.Fix(&s.runs, 0)
			case err == io.EOF && line == "":
				heap.Pop(&s.runs)
			default:
				yield("", fmt.Errorf("ledger: a temporary file cannot be read: %w", err))
				return
			}
		}
	}
}

func (s *sorter) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Close()
	if s.named {
		_ = os.Remove(s.file.Name())
	}
}

// head is the first line of a run that is not used yet, and the lines after it.
type head struct {
	line string
	rest *bufio.Reader
}

// heads are a heap.
type heads []*head

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return h[i].line < h[j].line }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)        { *h = append(*h, x.(*head)) }
func (h *heads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
