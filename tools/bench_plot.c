/* SPDX-License-Identifier: MIT */
/*
 * Time over floor as an SVG chart: a row a shape, grouped by operation, a mark an element type on a logarithmic axis,
 * and the numbers in columns at the right, whose heads are the legend.
 *
 * SVG cannot tell how long a text is: widths are reckoned from the number of characters, generously.
 */
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES = 3, LABEL_LINES = 6, LABEL_CHARS = 54 };

/* Colours that the colour-blind tell apart: Okabe and Ito, "Color Universal Design", 2008. */
static const struct {
    const char *name, *colour;
} types[TYPES] = {{"f32", "#0072b2"}, {"f16", "#009e73"}, {"bf16", "#d55e00"}};

/* Pixels. */
static const double char_width = 6.7, line_height = 14, margin = 24, head_height = 96, row_gap = 8, group_gap = 14,
                    plot_width = 420, column_width = 124, mark_height = 9;

struct row {
    const char *operation;
    char line[LABEL_LINES][LABEL_CHARS + 1]; /* the shape without its type */
    size_t lines;
    const struct bench_case *mark[TYPES]; /* NULL: not measured in that type */
    size_t marks;                         /* those that have a time */
    double y, height;
};

struct chart {
    const struct bench_run *run;
    struct row *row;
    size_t rows;
    bool used[TYPES];
    double left, right, bottom;   /* of the plot */
    double width;                 /* of the picture */
    double low, high;             /* of the axis */
    char head[2][5 * BENCH_WORD]; /* lines under the title */
    struct wd_text svg;
};

/* ---- Rows ---- */

/* Splits a shape into its type (an index) and the rest. */
static size_t split_type(const char *shape, char rest[SHAPE_TEXT])
{
    size_t type = 0, length = 0;
    for (const char *word = shape; *word;) {
        const size_t n = strcspn(word, ",");
        bool is_type = false;
        for (size_t t = 0; t < TYPES; t++)
            if (n == strlen(types[t].name) + 6 && !strncmp(word, "dtype=", 6) &&
                !strncmp(word + 6, types[t].name, n - 6)) {
                type = t;
                is_type = true;
            }
        if (!is_type && length + n + 2 < SHAPE_TEXT) {
            length += (size_t)snprintf(rest + length, SHAPE_TEXT - length, "%s%.*s", length ? "," : "", (int)n, word);
        }
        word += n + (word[n] == ',');
    }
    rest[length] = '\0';
    return type;
}

/* Breaks a shape into lines after commas. What is longer than all lines together is cut. */
static void break_lines(struct row *row, const char *text)
{
    row->lines = 0;
    while (*text && row->lines < LABEL_LINES) {
        size_t n = strlen(text);
        if (n > LABEL_CHARS) {
            n = LABEL_CHARS;
            while (n > 0 && text[n - 1] != ',')
                n--;
            n = n ? n : LABEL_CHARS;
        }
        snprintf(row->line[row->lines++], LABEL_CHARS + 1, "%.*s", (int)n, text);
        text += n;
    }
}

static bool same_label(const struct row *a, const struct row *b)
{
    if (strcmp(a->operation, b->operation) != 0 || a->lines != b->lines)
        return false;
    for (size_t i = 0; i < a->lines; i++)
        if (strcmp(a->line[i], b->line[i]) != 0)
            return false;
    return true;
}

/* Puts a case into the row of its shape, or makes one: behind the other rows of its operation. */
static bool place(struct chart *c, const struct bench_case *one)
{
    char rest[SHAPE_TEXT];
    struct row row = {.operation = one->operation};
    const size_t type = split_type(one->shape, rest);
    break_lines(&row, rest);
    row.mark[type] = one;
    c->used[type] = true;
    size_t at = c->rows;
    for (size_t i = 0; i < c->rows; i++) {
        if (same_label(&c->row[i], &row) && !c->row[i].mark[type]) {
            c->row[i].mark[type] = one;
            return true;
        }
        if (strcmp(c->row[i].operation, row.operation) == 0)
            at = i + 1;
    }
    struct row *grown = realloc(c->row, (c->rows + 1) * sizeof *grown);
    if (!grown)
        return false;
    c->row = grown;
    memmove(&grown[at + 1], &grown[at], (c->rows - at) * sizeof *grown);
    grown[at] = row;
    c->rows++;
    return true;
}

/* ---- Places ---- */

static bool begins_group(const struct chart *c, size_t i)
{
    return i == 0 || strcmp(c->row[i].operation, c->row[i - 1].operation) != 0;
}

static double x_of(const struct chart *c, double ratio)
{
    return c->left + (c->right - c->left) * log(ratio / c->low) / log(c->high / c->low);
}

/* The middle half of the rounds. */
static void quartiles(const struct bench_case *one, double *low, double *high)
{
    double sorted[BENCH_SAMPLES];
    bench_sort(one, sorted);
    *low = fmax(sorted[one->samples / 4], 1) / one->floor_ns;
    *high = fmax(sorted[(3 * one->samples) / 4], 1) / one->floor_ns;
}

static void head_text(const struct bench_run *run, char head[2][5 * BENCH_WORD])
{
    snprintf(head[0], 5 * BENCH_WORD, "%s, driver %s; warpdrive %s, %s", run->device, run->driver, run->version,
             run->date);
    snprintf(head[1], 5 * BENCH_WORD,
             "floor: bytes at %.1f GB/s, as a copy has, or operations at %.0f GFLOP/s, as f32 multiply-adds have",
             run->copy.per_s * 1e-9, run->fma.per_s * 1e-9);
}

static void lay_out(struct chart *c)
{
    size_t chars = 0, columns = 0;
    double y = head_height;
    c->low = 0.95;
    c->high = 2.1;
    for (size_t i = 0; i < c->rows; i++) {
        struct row *r = &c->row[i];
        for (size_t line = 0; line < r->lines; line++)
            chars = strlen(r->line[line]) > chars ? strlen(r->line[line]) : chars;
        chars = strlen(r->operation) > chars ? strlen(r->operation) : chars;
        for (size_t t = 0; t < TYPES; t++) {
            double low, high;
            if (!r->mark[t] || !r->mark[t]->samples)
                continue;
            r->marks++;
            quartiles(r->mark[t], &low, &high);
            c->low = fmin(c->low, low / 1.05);
            c->high = fmax(c->high, high * 1.05);
        }
        y += begins_group(c, i) ? group_gap + line_height + 4 : 0;
        r->y = y;
        r->height = fmax(line_height * (double)r->lines, mark_height * (double)r->marks) + row_gap;
        y += r->height;
    }
    for (size_t t = 0; t < TYPES; t++)
        columns += c->used[t];
    c->bottom = y + 4;
    c->left = margin + char_width * (double)(chars + 2);
    c->right = c->left + plot_width;
    head_text(c->run, c->head);
    chars = strlen(c->head[0]) > strlen(c->head[1]) ? strlen(c->head[0]) : strlen(c->head[1]);
    c->width = fmax(c->right + 12 + column_width * (double)columns, margin + char_width * (double)chars) + margin;
}

/* ---- Drawing ---- */

/* Text for XML: what is not UTF-8, and what XML forbids, becomes U+FFFD. */
static void add_escaped(struct wd_text *svg, const char *s)
{
    for (size_t n; *s; s += n ? n : 1) {
        n = wd_utf8_length(s);
        if (n == 0 || (unsigned char)*s < 0x20)
            wd_text_add(svg, "\xef\xbf\xbd");
        else if (*s == '&')
            wd_text_add(svg, "&amp;");
        else if (*s == '<')
            wd_text_add(svg, "&lt;");
        else
            wd_text_add(svg, "%.*s", (int)n, s);
    }
}

/* `style`: attributes. */
static void add_label(struct wd_text *svg, double x, double y, const char *style, const char *text)
{
    wd_text_add(svg, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    add_escaped(svg, text);
    wd_text_add(svg, "</text>\n");
}

static void add_line(struct wd_text *svg, double x1, double y1, double x2, double y2, const char *colour, double width)
{
    wd_text_add(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n",
                x1, y1, x2, y2, colour, width);
}

/* A disc, a square, a diamond: told apart without colours, too. */
static void add_mark(struct wd_text *svg, size_t type, double x, double y)
{
    const char *colour = types[type].colour;
    if (type == 0)
        wd_text_add(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x, y, colour);
    else if (type == 1)
        wd_text_add(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\" fill=\"%s\"/>\n", x - 3.5, y - 3.5,
                    colour);
    else
        wd_text_add(svg, "<path d=\"M%.1f %.1fl5 5l-5 5l-5-5z\" fill=\"%s\"/>\n", x, y - 5, colour);
}

static const char small[] = "font-size=\"11\" fill=\"#333\"",
                  over_lines[] =
                      "font-size=\"11\" fill=\"#777\" stroke=\"#fff\" stroke-width=\"4\" paint-order=\"stroke\"",
                  grey_at_end[] = "font-size=\"11\" fill=\"#777\" text-anchor=\"end\"",
                  bold[] = "font-size=\"12\" font-weight=\"bold\" fill=\"#111\"",
                  title[] = "font-size=\"17\" font-weight=\"bold\" fill=\"#111\"",
                  middle[] = "font-size=\"11\" fill=\"#333\" text-anchor=\"middle\"",
                  middle_bold[] = "font-size=\"11\" font-weight=\"bold\" fill=\"#111\" text-anchor=\"middle\"",
                  at_end[] = "font-size=\"11\" fill=\"#333\" text-anchor=\"end\"",
                  bold_at_end[] = "font-size=\"11\" font-weight=\"bold\" fill=\"#111\" text-anchor=\"end\"";

static void draw_head(struct chart *c)
{
    add_label(&c->svg, margin, 32, title, "Time over floor");
    add_label(&c->svg, margin, 50, small, c->head[0]);
    add_label(&c->svg, margin, 65, small, c->head[1]);
    double x = c->right + 12;
    for (size_t t = 0; t < TYPES; t++) {
        if (!c->used[t])
            continue;
        add_mark(&c->svg, t, x + 20, head_height - 8);
        add_label(&c->svg, x + 30, head_height - 4, bold, types[t].name);
        x += column_width;
    }
}

/* Round numbers, the roundest first, as far as their labels do not touch. */
static void draw_axis(struct chart *c)
{
    static const double steps[] = {1, 2, 5, 3, 1.5, 7};
    double taken[64];
    size_t n = 0;
    for (size_t s = 0; s < WD_COUNT(steps); s++)
        for (int decade = -2; decade <= 5 && n < WD_COUNT(taken); decade++) {
            const double value = steps[s] * pow(10, decade), x = x_of(c, value);
            bool free_place = value >= c->low && value <= c->high;
            for (size_t i = 0; i < n; i++)
                free_place &= fabs(taken[i] - x) > 34;
            if (!free_place)
                continue;
            char text[24];
            const bool floor_line = value == 1;
            snprintf(text, sizeof text, "%g\xc3\x97", value);
            add_line(&c->svg, x, head_height, x, c->bottom, floor_line ? "#111" : "#ddd", floor_line ? 1.5 : 1);
            add_label(&c->svg, x, head_height - 6, floor_line ? middle_bold : middle, text);
            add_label(&c->svg, x, c->bottom + 15, floor_line ? middle_bold : middle, floor_line ? "floor" : text);
            taken[n++] = x;
        }
    add_label(&c->svg, (c->left + c->right) / 2, c->bottom + 34, middle,
              "median time over floor, logarithmic; bars hold the middle half of the rounds");
}

/* Why there is no time, as far as it fits. */
static void draw_fault(struct chart *c, const char *fault, double y)
{
    const int most = (int)((c->right - c->left) / char_width) - 4;
    char text[BENCH_TEXT + 8];
    const bool whole = (int)strlen(fault) <= most;
    snprintf(text, sizeof text, "%.*s%s", whole ? most : most - 1, fault, whole ? "" : "\xe2\x80\xa6");
    add_label(&c->svg, c->left + 8, y + 4, over_lines, text);
}

/* The mark at `y`, the numbers at `text_y`. */
static void draw_case(struct chart *c, const struct bench_case *one, size_t type, double y, double text_y,
                      double column)
{
    char text[CLI_NUMBER];
    double low, high;
    if (!one->samples) {
        add_label(&c->svg, column + column_width - 4, text_y + 4, grey_at_end, "no time");
        return;
    }
    const double ratio = one->median_ns / one->floor_ns;
    quartiles(one, &low, &high);
    add_line(&c->svg, x_of(c, 1), y, x_of(c, ratio), y, "#bbb", 1);
    wd_text_add(&c->svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"6\" fill=\"%s\" fill-opacity=\"0.3\"/>\n",
                x_of(c, low), y - 3, x_of(c, high) - x_of(c, low), types[type].colour);
    add_mark(&c->svg, type, x_of(c, ratio), y);
    snprintf(text, sizeof text, ratio < 100 ? "%.2f\xc3\x97" : "%.0f\xc3\x97", ratio);
    add_label(&c->svg, column + 58, text_y + 4, bold_at_end, text);
    add_label(&c->svg, column + column_width - 4, text_y + 4, at_end, cli_time(one->median_ns, text));
}

static void draw_row(struct chart *c, size_t i)
{
    const struct row *r = &c->row[i];
    const double centre = r->y + r->height / 2;
    double column = c->right + 12, y = centre - mark_height * ((double)r->marks - 1) / 2;
    const char *fault = NULL;
    if (begins_group(c, i)) {
        add_line(&c->svg, margin, r->y - line_height - 7, c->width - margin, r->y - line_height - 7, "#eee", 1);
        add_label(&c->svg, margin, r->y - 4, bold, r->operation);
    }
    for (size_t line = 0; line < r->lines; line++)
        add_label(&c->svg, margin + char_width, centre + 4 + line_height * ((double)line - ((double)r->lines - 1) / 2),
                  small, r->line[line]);
    for (size_t t = 0; t < TYPES; t++) {
        if (r->mark[t])
            draw_case(c, r->mark[t], t, y, centre, column);
        if (r->mark[t] && !r->mark[t]->samples)
            fault = r->mark[t]->fault;
        y += r->mark[t] && r->mark[t]->samples ? mark_height : 0;
        column += c->used[t] ? column_width : 0;
    }
    if (fault && !r->marks)
        draw_fault(c, fault, centre);
}

static void draw(struct chart *c)
{
    const double height = c->bottom + 34 + margin;
    wd_text_add(&c->svg,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                "font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\">\n<title>Time over floor</title>\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                c->width, height, c->width, height);
    draw_head(c);
    draw_axis(c);
    for (size_t i = 0; i < c->rows; i++)
        draw_row(c, i);
    wd_text_add(&c->svg, "</svg>\n");
}

wd_status bench_plot(const struct bench_run *run, const char *path)
{
    struct chart c = {.run = run};
    bool ok = true;
    for (size_t i = 0; i < run->count && ok; i++)
        ok = place(&c, &run->cases[i]);
    wd_status st = WD_OK;
    if (ok) {
        lay_out(&c);
        draw(&c);
    }
    if (!ok || c.svg.failed) {
        st = wd_fail(WD_ENOMEM, "bench: out of memory");
    } else {
        FILE *file = fopen(path, "w");
        const bool written = file && fwrite(c.svg.data, 1, c.svg.size, file) == c.svg.size;
        if ((file && fclose(file)) || !written)
            st = wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    }
    wd_text_free(&c.svg);
    free(c.row);
    return st;
}
