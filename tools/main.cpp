#include "tools/verbs/command.h"

int main(int argc, char** argv) { return lenslet::tool::run_command(argc, argv); }
