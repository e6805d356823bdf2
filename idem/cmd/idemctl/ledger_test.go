package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNoExportIsComparedWrongly(t *testing.T) {
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const header, row = "key,time,status,amount,currency", "a,2026-03-01 12:00:00,"
	for name, tc := range map[string]struct {
		rows []string
		want []string // the values
		says string
	}{
		"a column twice":       {rows: []string{header + ", amount", row + "ok,100,EUR,108"}, says: `two columns "amount"`},
		"another column twice": {rows: []string{header + ",a,a", row + "ok,100,EUR,,"}, want: []string{"100 EUR"}},
		"no values": {rows: []string{header, row + "ok,, ", row + "no,1,EUR", "b,2026-02-28 12:00:00,ok,1,EUR"},
			says: "no row of 2026-03-01 has anything in amount, currency"},
		"no value in a row":    {rows: []string{header, row + "ok,,", row + "ok,1,EUR"}, want: []string{"", "1 EUR"}},
		"one value":            {rows: []string{header, row + "ok,,EUR"}, want: []string{" EUR"}},
		"no row":               {rows: []string{header}},
		"no row has the state": {rows: []string{header, row + "OK,1,EUR"}, says: `the last one has "OK"`},
		"no row of the day has it": {rows: []string{header, row + "no,1,EUR", "b,2026-02-01 12:00:00,ok,1,EUR"},
			says: "is of 2026-03-01"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &ledgerCmd{TokenColumn: "key", TimeColumn: "time", ValueColumn: []string{"amount", "currency"},
				StateColumn: "status", State: []string{"ok"}, zone: time.UTC, date: day}
			var got []string
			x, err := openExport("-", strings.NewReader(strings.Join(tc.rows, "\n")), c.columns())
			if err == nil {
				for e, failed := range c.entries(x, day, day.AddDate(0, 0, 1)) {
					if err = failed; err == nil {
						got = append(got, e.Value)
					}
				}
			}
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestAnExportMayHaveColumnsWithoutNames(t *testing.T) {
	c := &ledgerCmd{TokenColumn: "key", TimeColumn: "time", zone: time.UTC}
	_, err := openExport("-", strings.NewReader("key,time,,\na,2026-03-01 12:00:00,,\n"), c.columns())
	require.NoError(t, err)
}
