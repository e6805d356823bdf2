package peer

import (
	_ "embed"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
)

//go:embed chart.svg.tmpl
var chartTemplate string

// panel compares the sides in one case.
type panel struct {
	Name string
	X, Y int
	Bars []bar
}

type bar struct {
	Side     string
	Value    float64
	Y, Width int
}

// chart draws rows of the page: a line for each case, with a panel for times and one for bytes.
func chart(t *testing.T, costs []cost) string {
	var panels []panel
	add := func(name string, x int, costs []cost, value func(cost) float64) {
		p, most := panel{Name: name, X: x, Y: 30 + 98*(len(panels)/2)}, 0.0
		for _, c := range costs {
			most = max(most, value(c))
		}
		for i, c := range costs {
			p.Bars = append(p.Bars, bar{c.side, value(c), 19 * i, int(210 * value(c) / most)})
		}
		panels = append(panels, p)
	}
	n := len(costs) / len(cases) // sides
	for i, c := range cases {
		add(c.name+", ms", 16, costs[i*n:(i+1)*n], func(c cost) float64 { return c.n[millis] })
		add(c.name+", bytes", 396, costs[i*n:(i+1)*n], func(c cost) float64 { return c.n[sent] + c.n[received] })
	}
	var out strings.Builder
	require.NoError(t, template.Must(template.New("chart").Parse(chartTemplate)).Execute(&out, panels))
	return out.String()
}
