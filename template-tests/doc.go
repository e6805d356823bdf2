// Package templatetests holds what package infra synthesizes to what it promises.
// It has no code but tests.
package templatetests
