/* SPDX-License-Identifier: MIT */
/*
 * embed OUT.c FILE...
 *
 * Build-time program: writes the files as one C source that defines wd_embedded[] (src/embedded.h). Bytes, not
 * string literals: C11 promises no more than 4095 characters in one of those.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const char *file)
{
    fprintf(stderr, "embed: cannot %s %s\n", what, file);
    return EXIT_FAILURE;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Writes one file as `text_<index>`; its size, or -1 if it cannot be read. */
static long write_bytes(FILE *out, const char *path, int index)
{
    FILE *in = fopen(path, "rb");
    if (!in)
        return -1;
    fprintf(out, "\nstatic const unsigned char text_%d[] = {", index);
    long size = 0;
    for (int c; (c = getc(in)) != EOF; size++)
        fprintf(out, "%s%d,", size % 24 ? "" : "\n    ", c);
    fprintf(out, "\n    0};\n");
    const int bad = ferror(in);
    fclose(in);
    return bad ? -1 : size;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: embed OUT.c FILE...\n");
        return EXIT_FAILURE;
    }
    FILE *out = fopen(argv[1], "w");
    if (!out)
        return fail("write", argv[1]);
    fprintf(out, "/* Written by tools/embed.c. */\n#include \"embedded.h\"\n");
    for (int i = 2; i < argc; i++) {
        if (write_bytes(out, argv[i], i - 2) < 0) {
            fclose(out);
            remove(argv[1]);
            return fail("read", argv[i]);
        }
    }
    fprintf(out, "\nconst struct wd_embedded wd_embedded[] = {\n");
    for (int i = 2; i < argc; i++)
        fprintf(out, "    {\"%s\", (const char *)text_%d, sizeof(text_%d) - 1},\n", base_name(argv[i]), i - 2, i - 2);
    fprintf(out, "    {0},\n};\n");
    const int bad = ferror(out);
    if (fclose(out) || bad) {
        remove(argv[1]);
        return fail("write", argv[1]);
    }
    return EXIT_SUCCESS;
}
