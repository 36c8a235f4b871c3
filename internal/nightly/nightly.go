// Package nightly answers one question: does tonight count?
package nightly
