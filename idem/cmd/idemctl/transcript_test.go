package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// world is what the transcripts look at.
func (b *bench) world() {
	b.unknown(refund.Key("acme", "r-1"))
	b.Clock.Advance(2 * time.Hour)
	b.killed(refund.Key("globex", "r-2"))
	b.Clock.Advance(30 * time.Minute)
	b.request("payment-0000000001")
	b.stepped(invoice.Key("acme", "march"))
	b.Clock.Advance(10 * time.Minute)
	b.killed(refund.Key("acme", "r-3"))
	require.NoError(b.t, b.call(refund.Key("acme", "r-4"), result))
	require.Error(b.t, b.call(refund.Key("acme", "r-5"), fails(idem.Permanent(errCut))))
	b.Clock.Advance(15 * time.Second)
}

// more is what single transcripts look at besides.
var more = map[string]func(*bench){
	"steps.txt": func(b *bench) {
		b.interrupted(order.Key("acme", "o-1"))
		b.unknown(order.Key("acme", "o-2"))
		b.interrupted(order.Key("acme", "o-3"))
		b.Clock.Advance(time.Hour)
	},
	"undone.txt": func(b *bench) {
		b.undoing(order.Key("acme", "o-1"))
		b.Clock.Advance(time.Hour)
	},
	"unreadable.txt": func(b *bench) {
		_, _, _ = b.run("resolve", r1.ID(), "--to", "failed", "--message", "declined", "--reason", "case 4711", "--yes")
		b.spoil(r1)
	},
}

// Every command and output of the README, and of testdata, is what the command prints.
func TestTranscriptsAreWhatTheCommandPrints(t *testing.T) {
	t.Setenv("COLUMNS", "80") // of the help
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for _, path := range append(files, "README.md") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			withBench(t, func(t *testing.T, b *bench) {
				b.world()
				if tell := more[filepath.Base(path)]; tell != nil {
					tell(b)
				}
				golden(t, path, b.transcript(string(text)))
			})
		})
	}
}
