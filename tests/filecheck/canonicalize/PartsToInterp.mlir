// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The products with matrices that a cubic Resize became are one linear interpolation, as in TPU-MLIR (U-109); the
// Gathers that a nearest Resize became are one Interp too.
// WEIGHT rows = 1 2 3
// WEIGHT columns = 1 2 3
// WEIGHT places = 0 1 1

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x2x3x4xf32>) -> tensor<1x2x9x8xf32> {
    %x = "top.Input"(%in) : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> loc("x")
    %none = "top.None"() : () -> none
    %t = "top.Permute"(%x) {order = [0, 1, 3, 2], tpusim.part_of = "Interp cubic half_pixel _Resize:r"} : (tensor<1x2x3x4xf32>) -> tensor<1x2x4x3xf32> loc("r_part0_Transpose")
    %rows = "top.Weight"() : () -> tensor<3x6xf32> loc("rows")
    %m = "top.MatMul"(%t, %rows, %none) {tpusim.part_of = "Interp cubic half_pixel _Resize:r"} : (tensor<1x2x4x3xf32>, tensor<3x6xf32>, none) -> tensor<1x2x4x6xf32> loc("r_part1_MatMul")
    %b = "top.Permute"(%m) {order = [0, 1, 3, 2], tpusim.part_of = "Interp cubic half_pixel _Resize:r"} : (tensor<1x2x4x6xf32>) -> tensor<1x2x6x4xf32> loc("r_part3_Transpose")
    %columns = "top.Weight"() : () -> tensor<4x8xf32> loc("columns")
    %r = "top.MatMul"(%b, %columns, %none) {tpusim.part_of = "Interp cubic half_pixel _Resize:r"} : (tensor<1x2x6x4xf32>, tensor<4x8xf32>, none) -> tensor<1x2x6x8xf32> loc("r_part5_MatMul")
    %y = "top.Relu"(%r) : (tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32> loc("y")
    %places = "top.Weight"() : () -> tensor<9xi32> loc("places")
    %n = "top.Gather"(%y, %places) {axis = 2 : si32, tpusim.part_of = "Interp nearest asymmetric :n"} : (tensor<1x2x6x8xf32>, tensor<9xi32>) -> tensor<1x2x9x8xf32> loc("n")
    %z = "top.Abs"(%n) : (tensor<1x2x9x8xf32>) -> tensor<1x2x9x8xf32> loc("z")
    func.return %z : tensor<1x2x9x8xf32>
  }
}

// CHECK:      %r = "top.Interp"(%x, {{.*}}) {{{.*}}mode = "linear", coord_mode = "half_pixel"{{.*}}} {{.*}} loc("r_Resize")
// CHECK-NEXT: %y = "top.Relu"(%r) {{.*}} loc("y")
// CHECK-NEXT: %n = "top.Interp"(%y, {{.*}}) {{{.*}}mode = "nearest", coord_mode = "asymmetric"{{.*}}} {{.*}} loc("n")
