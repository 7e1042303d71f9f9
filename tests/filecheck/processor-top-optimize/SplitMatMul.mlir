// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=INT8},processor-top-optimize' %s | filecheck %s
//
// A MatMul of which Slices read 3 and 2 columns becomes two products, by 3 and by 2 columns.
// WEIGHT w = 1 2 3 4 5
// WEIGHT b = 10 20 30 40 50

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6xf32>) -> (tensor<1x4x3xf32>, tensor<1x4x2xf32>) {
    %x = "top.Input"(%in) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("x")
    %w = "top.Weight"() : () -> tensor<6x5xf32> loc("w")
    %b = "top.Weight"() : () -> tensor<5xf32> loc("b")
    %y = "top.MatMul"(%x, %w, %b) {left_transpose = false, right_transpose = false, do_relu = false, relu_limit = -1.000000e+00 : f64} : (tensor<1x4x6xf32>, tensor<6x5xf32>, tensor<5xf32>) -> tensor<1x4x5xf32> loc("y")
    %a = "top.Slice"(%y) {offset = [0 : i64, 0 : i64, 0 : i64], steps = [1 : i64, 1 : i64, 1 : i64], ends = [1 : i64, 4 : i64, 3 : i64]} : (tensor<1x4x5xf32>) -> tensor<1x4x3xf32> loc("a")
    %c = "top.Slice"(%y) {offset = [0 : i64, 0 : i64, 3 : i64], steps = [1 : i64, 1 : i64, 1 : i64], ends = [1 : i64, 4 : i64, 5 : i64]} : (tensor<1x4x5xf32>) -> tensor<1x4x2xf32> loc("c")
    func.return %a, %c : tensor<1x4x3xf32>, tensor<1x4x2xf32>
  }
}

// CHECK:      %0 = "top.Weight"() : () -> tensor<6x3xf32> loc("y_matmul_1_filter")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<3xf32> loc("y_matmul_1_bias")
// CHECK-NEXT: %a = "top.MatMul"(%x, %0, %1) {{.*}} -> tensor<1x4x3xf32> loc("y_matmul_1")
// CHECK-NEXT: %2 = "top.Weight"() : () -> tensor<6x2xf32> loc("y_matmul_2_filter")
// CHECK-NEXT: %3 = "top.Weight"() : () -> tensor<2xf32> loc("y_matmul_2_bias")
// CHECK-NEXT: %c = "top.MatMul"(%x, %2, %3) {{.*}} -> tensor<1x4x2xf32> loc("y_matmul_2")
// CHECK-NEXT: func.return %a, %c : tensor<1x4x3xf32>, tensor<1x4x2xf32>
