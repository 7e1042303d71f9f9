// RUN: tpusim opt -p 'smoothquant{data=random:2}' %s | filecheck %s
//
// The channels of a LayerNorm are divided by factors, and the rows of the matrix after it are multiplied by them.
// WEIGHT row = 1 2 3 4 5 6
// WEIGHT offsets = 1 2 3 4 5 6
// WEIGHT matrix = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x5xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %row = "top.Weight"() : () -> tensor<6xf32> loc("row")
    %offsets = "top.Weight"() : () -> tensor<6xf32> loc("offsets")
    %none = "top.None"() : () -> none
    %a = "top.LayerNorm"(%x, %row, %offsets) {axis = 2, eps = 1.000000e-05 : f64} : (tensor<2x4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x4x6xf32> loc("a")
    %matrix = "top.Weight"() : () -> tensor<6x5xf32> loc("matrix")
    %y = "top.MatMul"(%a, %matrix, %none) {left_transpose = false, right_transpose = false} : (tensor<2x4x6xf32>, tensor<6x5xf32>, none) -> tensor<2x4x5xf32> loc("y")
    func.return %y : tensor<2x4x5xf32>
  }
}

// CHECK:      module.state = "TOP_F32"
// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %row = "top.Weight"() : () -> tensor<6xf32> loc("row")
// CHECK-NEXT: %offsets = "top.Weight"() : () -> tensor<6xf32> loc("offsets")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<6xf32> loc("row_smooth")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<6xf32> loc("offsets_smooth")
// CHECK-NEXT: %a = "top.LayerNorm"(%x, %0, %1) {axis = 2 : si32, eps = 1.000000e-05 : f64, normalized_shape = [6 : i64]}{{.*}} -> tensor<2x4x6xf32> loc("a")
// CHECK-NEXT: %matrix = "top.Weight"() : () -> tensor<6x5xf32> loc("matrix")
// CHECK-NEXT: %2 = "top.Weight"() : () -> tensor<6x5xf32> loc("matrix_smooth")
// CHECK-NEXT: %y = "top.MatMul"(%a, %2, %none) {left_transpose = false, right_transpose = false{{.*}} -> tensor<2x4x5xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x5xf32>
