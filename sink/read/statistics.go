package read

import (
	"context"
	"fmt"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// Statistics opens a scan's file of statistics, if it matches its record. The error is store.ErrNotExist if there is
// none.
func Statistics(ctx context.Context, st store.Store, scanID, tableName string, fields ...table.Field) (*table.Cursor,
	error) {
	for was := ""; ; {
		record, err := commit.ReadFileRecord(ctx, st, scanID, tableName)
		if err != nil {
			return nil, err
		}
		rows, err := table.OpenRecorded(ctx, st, record.File, fields...)
		if err == nil || !table.IsDamage(err) {
			return rows, err
		}
		// The record is written before the file, and the process may die in between.
		for _, sum := range record.Earlier {
			earlier := schema.File{Table: tableName, Name: record.File.Name, SHA256: sum}
			if rows, err := table.OpenRecorded(ctx, st, earlier, fields...); err == nil {
				return rows, nil
			}
		}
		if was == record.Sum {
			return nil, fmt.Errorf("scan %s is damaged: %w", scanID, err)
		}
		was = record.Sum // both may have been replaced meanwhile
	}
}
