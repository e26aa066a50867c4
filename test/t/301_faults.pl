
# Random faults on three servers, for a short while: see FaultRun.  The long form is "make
# faults".

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use FaultRun;

my $run = FaultRun->new(5, 18, PostgreSQL::Test::Utils::tempdir('history'));
my @problems = $run->run;
my %figures = $run->figures;
note join ' ', map { "$_=$figures{$_}" } sort keys %figures;

diag "void: $_" foreach $run->void;
SKIP:
{
	skip 'void: ZooKeeper forgot something, or its servers differ', 1 if $run->void;
	is(join("\n", @problems), '', 'under faults, everything was as promised');
}
cmp_ok($figures{acquire_ok}, '>', 30, 'locks were granted');
cmp_ok($figures{runs_committed}, '>', 5, 'jobs ran');
cmp_ok($figures{led_ok}, '>', 0, 'and leaders committed');
cmp_ok($figures{faults}, '>', 10, 'there were faults');

done_testing();
